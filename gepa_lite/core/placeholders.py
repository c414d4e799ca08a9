"""What code fills into a prompt: how placeholders are recognized and spelled, and the grammars of whole templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gepa_lite.core.form import Form

FORMS: tuple[Form, ...] = ("text", "json", "jinja", "format", "template", "python")

GRAMMARS: dict[str, str] = {"jinja": "Jinja2 template", "format": "text for str.format", "template": "text for string.Template"}
"""The forms with a grammar of their own, in words."""

# each alternative begins with its own sign, and looks back after it, so that a search skips whatever is none of them
PLACEHOLDERS = re.compile(
    r"\{\{-?\s*(?P<double>[A-Za-z_][\w.]*)[^{}]*\}\}"
    r"|\$\{(?P<dollar>[A-Za-z_]\w*)\}"
    r"|\$(?<![\w$]\$)(?P<bare>[A-Za-z_]\w*)"
    r"|%\((?P<percent>[A-Za-z_]\w*)\)[sdifrgx]"
    r"|\{(?<![{$]\{)(?P<single>[A-Za-z_]\w*(?:\.\w+|\[[^\[\]{}\"'\s]+\])*)(?:![rsa])?(?::[^{}\s\"']*)?\}(?!\})"
)
_STYLES = {"double": "{{%s}}", "dollar": "${%s}", "bare": "${%s}", "percent": "%%(%s)s", "single": "{%s}"}


def placeholders_of(text: str, form: str = "text") -> frozenset[str]:
    """What code would fill in: ``{name}``, ``{{name}}``, ``$name`` and ``${name}``, ``%(name)s``, each spelled in one way; of a template in a form with a grammar, its fields.

    >>> sorted(placeholders_of('Ask {city!r} for {{ item | upper }} at $price. Answer {"a": 1}.'))
    ['${price}', '{city}', '{{item}}']
    >>> sorted(placeholders_of('Ask {rows[0].city} for {}. Answer {{"a": 1}}.', "format"))
    ['{rows[0].city}', '{}']
    """
    if form in GRAMMARS:
        fields = template_fields(text, form)
        return frozenset() if isinstance(fields, str) else fields
    return frozenset(_STYLES[match.lastgroup] % match[match.lastgroup] for match in PLACEHOLDERS.finditer(text) if match.lastgroup)


def template_fields(text: str, form: str) -> frozenset[str] | str:
    """The fields of a template, spelled as placeholders; or why it does not parse."""
    if form == "jinja":
        return _jinja_variables(text)
    if form == "format":
        try:
            return frozenset(f"{{{name}}}" for name in _format_fields(text))
        except ValueError as error:
            return str(error)
    import string

    template = string.Template(text)
    if template.is_valid():
        return frozenset(f"${{{name}}}" for name in template.get_identifiers())
    match = next(match for match in template.pattern.finditer(text) if match["invalid"] is not None)
    return f"a $ at character {match.start()} starts no placeholder; write $$ for a dollar sign"


def likely_form(text: str) -> Form:
    """The form of a seed prompt that code fills in: ``format`` or ``template`` where it has such placeholders and the whole of it parses, else ``text``.

    >>> likely_form("Ask {city}."), likely_form("Ask $city."), likely_form('Ask {city}; answer {"a": 1}.')
    ('format', 'template', 'text')
    """
    found = placeholders_of(text)
    forms: tuple[Form, ...] = ("format", "template")
    return next((form for form in forms if found and template_fields(text, form) == found), "text")


def normal_placeholder(placeholder: str) -> str:
    """The one way in which a placeholder is spelled; any other text as it is."""
    match = PLACEHOLDERS.fullmatch(placeholder)
    return _STYLES[match.lastgroup] % match[match.lastgroup] if match and match.lastgroup else placeholder


def kind_of(placeholder: str) -> str:
    """Which style a placeholder is of: a word that is equal for equal styles."""
    return _kind_of(normal_placeholder(placeholder))


def _kind_of(placeholder: str) -> str:
    match = PLACEHOLDERS.fullmatch(placeholder)
    return match.lastgroup or "" if match else "other"


def _format_fields(text: str) -> Iterator[str]:
    import string

    for _, name, spec, _ in string.Formatter().parse(text):
        if name is not None:
            yield name
            yield from _format_fields(spec or "")


@lru_cache(maxsize=256)
def _jinja_variables(text: str) -> frozenset[str] | str:
    from jinja2 import TemplateError, meta
    from jinja2.sandbox import SandboxedEnvironment

    try:
        return frozenset(f"{{{{{name}}}}}" for name in meta.find_undeclared_variables(SandboxedEnvironment().parse(text)))
    except TemplateError as error:
        return str(error)
