"""Sentences and words of English texts, and the word lists that verifiable instructions speak of."""

from __future__ import annotations

import re

from gepa_lite.errors import UsageError


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


CONJUNCTIONS = _listed("and but for nor or so yet")
"""The coordinating conjunctions."""

PRONOUNS = _listed("""
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself they them their
    theirs themselves this that these those who whom whose which what whoever whomever whichever whatever all another any anybody anyone anything both
    each either everybody everyone everything few many neither nobody none nothing one ones other others several some somebody someone something such
    """)
"""Personal, possessive, reflexive, demonstrative, relative, interrogative and indefinite pronouns."""

STOP_WORDS = _listed("""
    a an the and but or nor so yet for if because as until while although though since unless of at by with about against between into through during
    before after above below to from up down in out on off over under again further then once here there when where why how all any both each few more
    most other some such no not only own same than too very can will just should would could may might must shall don doesn didn isn aren wasn weren won
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself they them their theirs
    themselves what which who whom this that these those am is are was were be been being have has had having do does did doing now
    """)
"""Function words that carry no topic; a list of our own, near those in common use."""

SMALL_WORDS = _listed("a an the and but or nor so yet for as at by in of off on per to up via if than vs with from into onto over")
"""Words that a title may write small."""

PERSON_NAMES = _listed("""
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily
    Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora
    Andrew Aria Joseph Claire Ryan Stella Jonathan
    """)
"""The names that IFBench's prompts list."""

_VERBS = _listed("""
    accept achieve act adapt add adjust admit adopt advise agree aim allow analyze announce answer appear apply appreciate approach arrange arrive ask
    assemble assess assign assume attach attempt attend avoid awake bake balance bear beat become begin believe belong bend bet bind bite blend blow boil
    book borrow bounce break breathe bring brush build burn buy calculate call care carry cast catch cause celebrate challenge change charge chase check
    choose circle claim clarify clean clear climb close collect combine come commit compare compile complete compose compute concern conclude conduct
    confirm connect consider construct consult contact contain continue contribute control convert cook cool copy correct cost count cover create cross
    cut dance deal decide declare decline decrease deepen define deliver demand demonstrate deny depend derive describe design determine develop devote
    die differ dig direct discover discuss divide do draft draw dream dress drink drive drop earn eat edit embrace emerge employ empower enable encourage
    end engage enhance enjoy ensure enter envision establish estimate evaluate examine exist expand expect experience explain explore express extend face
    fade fail fall feed feel fight figure fill find finish fit fix flee fly focus fold follow forget form foster gather generate get give go grab grow
    guess guide handle hang happen harness have head hear heat help hide highlight hit hold hope hug hunt hurry identify ignore illustrate imagine
    implement imply improve include incorporate increase indicate inform inspect inspire install integrate introduce invent invest investigate invite
    involve jump keep kick kill know land last laugh launch lay lead learn leave let leverage lie lift light like limit link list listen live look lose
    love maintain make manage mark match matter maximize mean measure meet melt mention mind minimize mix monitor move name navigate need note notice
    observe obtain occur offer open operate order organize outline own pack paint pass pause pay perform pick picture place plan plant play point pour
    practice prepare present preserve press prevent print prioritize proceed produce promote propose protect prove provide publish pull purchase pursue
    push put quit raise reach read realize receive recall recognize recommend record reduce refer reflect refuse reject relate relax release rely remain
    remember remove rent repair repeat replace reply report represent request require research resist resolve respect respond rest restore result retain
    return reveal review revise rewrite ride ring rise roll run save say schedule search see seek seem select sell send separate serve set settle shake
    shape share shift shine shoot show shut sign simplify sing sink sit sketch sleep slice slide smell smile solve sort sound speak specify spend spin
    split spread stand start state stay steal step stick stir stop store strengthen stretch strike strive study submit succeed suggest summarize supply
    support suppose surprise survive swim switch tackle take talk taste teach tell tend test thank think throw tie touch trace track trade train transfer
    transform translate travel treat trust try turn understand unite unleash unlock update use utilize value verify view visit visualize vote wait wake
    walk want warn wash watch wear welcome whisper win wish witness wonder work worry wrap write yield
    be am is are was were been being has had does did done went gone can could will would shall should may might must
    """)


def sentences(text: str) -> list[str]:
    """The sentences of a text: they end with ``.``, ``!``, ``?`` or a line.

    >>> sentences('He said "No." Then he left!')
    ['He said "No."', 'Then he left!']
    """
    ends = re.sub(r"([.!?\u2026]+[\"')\]*\u201d\u2019]*)\s+", r"\1\n", text)
    return [line.strip() for line in ends.split("\n") if any(letter.isalnum() for letter in line)]


def words(text: str) -> list[str]:
    """The words of a text: what white space parts, without the signs around.

    >>> words("Well-known: it's 3.5 km -- no more!")
    ['Well-known', "it's", '3.5', 'km', 'no', 'more']
    """
    bare = (re.sub(r"^[\W_]+|[\W_]+$", "", token) for token in text.replace("—", " ").split())
    return [word for word in bare if word]


def heads(text: str) -> list[str]:
    """The words up to an apostrophe: what ``it's`` and ``Emma's`` are forms of.

    >>> heads("It's Emma's, and I don't know.")
    ['It', 'Emma', 'and', 'I', 'don', 'know']
    """
    return [re.split("['\u2019]", word)[0] for word in words(text)]


def is_verb(word: str) -> bool:
    """Whether a word can be a verb, as far as a list of some 500 common ones and their regular forms tells.

    >>> is_verb("Imagine"), is_verb("making"), is_verb("stopped"), is_verb("eagle")
    (True, True, True, False)
    """
    low = word.lower().split("'")[0].split("-")[0]
    stems = {low}
    for ending in ("s", "es", "ed", "ing"):
        if low.endswith(ending) and len(low) > len(ending) + 1:
            stem = low.removesuffix(ending)
            stems |= (
                {stem, stem + "e"} | ({stem[:-1]} if stem[-1] == stem[-2] else set()) | ({stem[:-1] + "y"} if stem[-1] == "i" else set())
            )
    return not stems.isdisjoint(_VERBS)


def syllables(word: str) -> int:
    """How many syllables a word has, by the package ``syllapy``.

    Raises:
        UsageError: the package is not installed (the extra ``text``).
    """
    try:
        import syllapy
    except ImportError:
        raise UsageError("constraints: words:odd_even_syllables needs the package syllapy: pip install 'gepa-lite[text]'.") from None
    return max(1, int(syllapy.count(word)))
