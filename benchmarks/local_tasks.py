"""The local suite: tasks that a model of 1.5B finds neither trivial nor hopeless, with answers of at most some 40 tokens.

Each starts from a naive sentence, and has a prompt written by hand by someone who knows the task, so that a table shows what room there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gepa_lite.feedback.choice import choice
from gepa_lite.feedback.combine import weighted
from gepa_lite.feedback.match import normalized_match
from gepa_lite.feedback.numeric import numeric
from gepa_lite.feedback.overlap import token_f1
from gepa_lite.feedback.sql import sql_execution, statement

import gepa_lite as gl
from benchmarks import local_data
from benchmarks.data_sets import data_folder
from benchmarks.local_data import Splits
from gepa_lite.demo.task import Fernpost, house_rules
from gepa_lite.errors import UsageError

_TRANSFERS = {
    "pending_transfer": "a transfer is shown as pending, the sender asks why",
    "transfer_timing": "asks beforehand how long transfers take",
    "transfer_not_received_by_recipient": "was sent, and the other person does not have it",
    "failed_transfer": "the transfer did not work, with an error or without",
    "declined_transfer": "the transfer was declined or rejected",
    "beneficiary_not_allowed": "the app says that this recipient is not allowed",
    "cancel_transfer": "wants to stop, revert or undo a transfer, e.g. to the wrong account",
    "balance_not_updated_after_bank_transfer": "paid into the own account by transfer, and the balance has not changed",
    "transfer_fee_charged": "a fee was charged for a transfer",
    "transfer_into_account": "asks how to move money into the own account",
}
"""The ten intents of BANKING77 that are about transfers, which are easily confused, in words."""

_CARDS = {
    "card_arrival": "ordered a card, it has not come yet",
    "card_delivery_estimate": "asks how long delivery takes or when a card can come",
    "card_linking": "wants to add a card that is at hand, or was found again, to the app",
    "activate_my_card": "wants to activate a new card, or that fails",
    "card_about_to_expire": "the card expires or has expired, wants a new one",
    "order_physical_card": "asks how to get or order a plastic card",
    "getting_spare_card": "wants a second card, for the own account or for another person",
    "lost_or_stolen_card": "the card is lost, missing or stolen",
    "compromised_card": "someone else uses the card or knows its data",
    "card_not_working": "the card does not work or is broken",
}
"""Ten intents about cards."""


def _intent(labels: Iterable[str]) -> gl.Module:
    return gl.Module(f"text -> label: Literal[{', '.join(map(repr, labels))}]", "Label the message.", max_tokens=16, temperature=0.0)


class Question(gl.Program):
    """Say what kind of thing a question asks for."""

    kind = gl.Module(
        "text -> label: Literal['Description', 'Entity', 'Abbreviation', 'Human', 'Location', 'Number']",
        "Label the question.",
        max_tokens=8,
        temperature=0.0,
    )

    def forward(self, text: str) -> gl.Outputs:
        """Label one question."""
        return self.kind(text=text)


class Transfers(gl.Program):
    """Say what a bank's customer writes about transfers."""

    intent = _intent(_TRANSFERS)

    def forward(self, text: str) -> gl.Outputs:
        """Label one message."""
        return self.intent(text=text)


class Cards(Transfers):
    """Say what a bank's customer writes about cards."""

    intent = _intent(_CARDS)


class Email(gl.Program):
    """Say how urgent an e-mail to a facility service is, and how its sender feels."""

    sort = gl.Module(
        "message -> urgency: Literal['low', 'medium', 'high'], sentiment: Literal['negative', 'neutral', 'positive']",
        "Sort the message.",
        max_tokens=32,
        temperature=0.0,
    )

    def forward(self, message: str) -> gl.Outputs:
        """Sort one e-mail."""
        return self.sort(message=message)


class Sums(gl.Program):
    """Solve a word problem in at most 60 tokens."""

    solve = gl.Module("question -> answer", "Solve the problem.", max_tokens=60, temperature=0.0, retries=0)

    def forward(self, question: str) -> gl.Outputs:
        """Solve one problem."""
        return self.solve(question=question)


class Puzzle(gl.Program):
    """Answer a question of one kind."""

    answer = gl.Module("question -> answer", "Answer the question.", max_tokens=40, temperature=0.0, retries=0)

    def forward(self, question: str) -> gl.Outputs:
        """Answer one question."""
        return self.answer(question=question)


class Reader(gl.Program):
    """Answer a question from two paragraphs."""

    answer = gl.Module("question, facts -> answer", "Answer the question.", max_tokens=40, temperature=0.0, retries=0)

    def forward(self, question: str, facts: str) -> gl.Outputs:
        """Answer one question."""
        return self.answer(question=question, facts=facts)


class Asker(gl.Program):
    """Write an SQLite query that answers a question."""

    write = gl.Module("question, tables -> sql", "Answer the question with SQL.", max_tokens=64, temperature=0.0, retries=0)

    def forward(self, question: str, tables: str) -> gl.Outputs:
        """Write one query."""
        return gl.Outputs(sql=statement(self.write(question=question, tables=tables).sql))


@dataclass(frozen=True)
class LocalTask:
    """A program, its data and its feedback.

    Attributes:
        name: ends in ``-local``.
        program: its class.
        splits: makes the rows.
        feedback: judges an output; None for the program's own method.
        by_hand: prompts written by hand, by module.
    """

    name: str
    program: type[gl.Program]
    splits: Callable[[], Splits]
    feedback: Any
    by_hand: Mapping[str, str]


_KINDS = {
    "Abbreviation": "what an abbreviation stands for, or the short form of something",
    "Entity": "a thing: an animal, a colour, a product, a work, a word, an event, a food, a sport, an illness, a language",
    "Description": "a definition, a reason, a manner or what something is or means",
    "Human": "a person, a group, a company or a title of a person; also who somebody is",
    "Location": "a place: a city, a country, a state, a mountain, an address",
    "Number": "a number: a count, a date, a year, a price, a distance, a speed, an age, a percentage, a code",
}
_URGENCY = {
    "low": "a question or praise, no hurry",
    "medium": "a problem that should be solved soon, work goes on",
    "high": "an emergency, or immediate action is asked for",
}
_SENTIMENT = {"negative": "complains, is frustrated", "neutral": "matter of fact, polite", "positive": "is happy, praises or thanks warmly"}


def _listed(meanings: Mapping[str, str]) -> str:
    return "\n".join(f"- {label}: {words}." for label, words in meanings.items())


def _house_rules() -> Mapping[str, str]:
    rules = house_rules()
    topics = [*rules["plain_topics"].values(), *rules["topic_rules"].values()]
    return {
        "topic": "Name the topic of the message by these rules.\n" + "\n".join(topics),
        "team": "Choose the team for the topic by these rules.\n" + "\n".join(rules["team_rules"].values()),
    }


def _database(example: gl.Example) -> str:
    return str(data_folder() / "spider" / "databases" / f"{example['db_id']}.sqlite")


def _puzzle(task: str, by_hand: str, feedback: Any = None) -> LocalTask:
    name = f"bbh-{task.replace('_', '-')}-local"
    return LocalTask(name, Puzzle, partial(local_data.bbh, task), feedback or normalized_match("answer"), {"answer": by_hand})


_ALL = (
    LocalTask(
        "trec-local",
        Question,
        local_data.trec,
        choice("label", meanings=_KINDS),
        {"kind": f"Say what kind of answer the question asks for:\n{_listed(_KINDS)}"},
    ),
    LocalTask(
        "banking-transfers-local",
        Transfers,
        partial(local_data.banking, _TRANSFERS),
        choice("label", meanings=_TRANSFERS),
        {"intent": f"Say what the customer's message is about:\n{_listed(_TRANSFERS)}"},
    ),
    LocalTask(
        "banking-cards-local",
        Cards,
        partial(local_data.banking, _CARDS),
        choice("label", meanings=_CARDS),
        {"intent": f"Say what the customer's message is about:\n{_listed(_CARDS)}"},
    ),
    LocalTask("fernpost-local", Fernpost, local_data.fernpost, None, _house_rules()),
    LocalTask(
        "facility-local",
        Email,
        local_data.facility,
        weighted({"urgency": (choice("urgency", meanings=_URGENCY), 1), "sentiment": (choice("sentiment", meanings=_SENTIMENT), 1)}),
        {"sort": f"Judge the e-mail.\nurgency:\n{_listed(_URGENCY)}\nsentiment:\n{_listed(_SENTIMENT)}"},
    ),
    LocalTask(
        "gsm8k-local",
        Sums,
        local_data.gsm8k,
        numeric("answer"),
        {
            "solve": "Solve the problem step by step, but write nothing except short equations, one for each step, such as 48/2=24; 48+24=72. No words. The last number must be the answer."
        },
    ),
    LocalTask(
        "hotpotqa-local",
        Reader,
        local_data.hotpotqa,
        token_f1("answer"),
        {
            "answer": "Answer the question from the facts. Give the shortest answer alone: a name, a date, a number or a few words copied from the facts, or yes or no. No sentence."
        },
    ),
    LocalTask(
        "spider-local",
        Asker,
        local_data.spider,
        sql_execution(_database, ordered="order_matters"),
        {
            "write": "Write one SQLite query that answers the question. Give the query alone, in one line. Select exactly the columns asked for, in the order asked, and no others. Use only tables and columns that are listed. Join only where a column of another table is needed. Use count(*) for how many, and ORDER BY ... LIMIT 1 for the most or least."
        },
    ),
    _puzzle(
        "object_counting",
        "Count the things of the kind that is asked for. Write each with its number, joined by +, then = and the total, as in 'flute 1 + stoves 4 + lamp 1 = 6'. The last number must be the total.",
        numeric("answer"),
    ),
    _puzzle(
        "sports_understanding",
        "Say whether the sentence is plausible: whether the person plays the sport that the action belongs to. Answer with yes or no alone, in small letters.",
    ),
    _puzzle(
        "disambiguation_qa",
        "Choose the option that says whom the pronoun means. Choose 'Ambiguous' where both readings make sense. Answer with the letter in parentheses alone, such as (A).",
    ),
    _puzzle(
        "hyperbaton",
        "Adjectives come in this order: opinion, size, age, shape, colour, origin, material, purpose. Choose the sentence that keeps to it. Answer with (A) or (B) alone.",
    ),
    _puzzle("date_understanding", "Work out the date. Answer with the letter of the right option in parentheses alone, such as (A)."),
    _puzzle("reasoning_about_colored_objects", "Answer with the letter of the right option in parentheses alone, such as (A)."),
    _puzzle(
        "temporal_sequences",
        "Find the time span in which nobody saw the person and the place is open. Answer with the letter of that option in parentheses alone, such as (A).",
    ),
    _puzzle(
        "ruin_names",
        "Choose the edit that is a funny play on words: one that changes a letter or two and makes another real, funny word. Answer with the letter in parentheses alone, such as (A).",
    ),
    _puzzle("word_sorting", "Write all the words in alphabetical order with one space between them, and nothing else."),
)
TASKS: Mapping[str, LocalTask] = {task.name: task for task in _ALL}
SUITE = ("fernpost-local", "trec-local", "banking-transfers-local", "banking-cards-local", "bbh-object-counting-local", "spider-local")
"""Those that the suite runs."""


def find_task(name: str) -> LocalTask:
    """A task by name.

    Raises:
        UsageError: there is none.
    """
    if name not in TASKS:
        raise UsageError(f"no task {name!r}; there are {', '.join(TASKS)}.")
    return TASKS[name]
