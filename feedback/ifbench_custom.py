"""IFBench's single tasks (``custom:``): tables, lists and stories whose right form is known."""

from __future__ import annotations

import csv
import datetime
import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from .english import sentences, words

_CAPITALS = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London Brussels Kyiv Prague Luxembourg "
    "Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
).lower().split()  # fmt: skip
"""Capitals of Europe north of 45 degrees, from north to south."""

_OPTIONAL = frozenset(("kyiv", "moscow", "vaduz", "luxembourg"))
"""Capitals that a right list may leave out: of the smallest states, and of those that some sources count elsewhere or spell otherwise."""

_AFRICA = range(52, 59)
"""Countries of Africa, as different sources count them."""

_SURE = frozenset((
    "Algeria;Angola;Benin;Botswana;Burkina Faso;Burundi;Cameroon;Central African Republic;Chad;Comoros;Djibouti;Egypt;Equatorial Guinea;Eritrea;Ethiopia;"
    "Gabon;Ghana;Guinea;Guinea-Bissau;Kenya;Lesotho;Liberia;Libya;Madagascar;Malawi;Mali;Mauritania;Mauritius;Morocco;Mozambique;Namibia;Niger;Nigeria;"
    "Rwanda;Senegal;Seychelles;Sierra Leone;Somalia;South Africa;South Sudan;Sudan;Tanzania;Togo;Tunisia;Uganda;Zambia;Zimbabwe"
).lower().split(";"))  # fmt: skip
"""Countries of Africa of one name each, which a right list must hold."""

_OPTION = re.compile(r"^\s*(?:[-*]\s*)?\(?[A-Ea-e1-5][.):]\s*\S")


def _plain(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter)).strip().lower()


def _unfenced(text: str) -> list[str]:
    return [line for line in text.strip().split("\n") if line.strip() and not line.startswith("```")]


def _table(text: str, names: list[str], rows: int, mark: str) -> bool:
    read = list(csv.reader(_unfenced(text), delimiter=mark, skipinitialspace=True))
    return (
        [cell.strip() for cell in read[0]] == names and len(read) == rows + 1 and all(len(row) == len(names) for row in read)
        if read
        else False
    )


def _special_character(text: str, given: Mapping[str, Any]) -> bool:
    quoted = re.findall(r'(?:^|,)\s*"([^"\n]*)"', text, re.MULTILINE)
    return _table(text, ["ProductID", "Category", "Brand", "Price", "Stock"], 14, ",") and any(re.search(r"[^\w\s]", one) for one in quoted)


def _quoted_table(text: str, given: Mapping[str, Any]) -> bool:
    cells = [cell.strip() for line in _unfenced(text) for cell in line.split("\t")]
    closed = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    return closed and _table(text, ["StudentID", "Subject", "Grade", "Semester", "Score"], 3, "\t")


def _dates(text: str, given: Mapping[str, Any]) -> bool:
    items = [item.strip() for item in text.strip().rstrip(".").split(",")]
    if not all(re.fullmatch(r"\d{4}-\d\d-\d\d", item) for item in items):
        return False
    try:
        return all(datetime.date.fromisoformat(item) for item in items)
    except ValueError:
        return False


def _capitals(text: str, given: Mapping[str, Any]) -> bool:
    found = [
        _plain(item).removesuffix(" city").replace("kiev", "kyiv").replace("berne", "bern") for item in text.strip().rstrip(".").split(",")
    ]
    return found == [one for one in _CAPITALS if one in found] and set(_CAPITALS) - set(found) <= _OPTIONAL


def _multiple_choice(text: str, given: Mapping[str, Any]) -> bool:
    blocks = re.split(r"^(?=[\s#*]*Question)", text.strip(), flags=re.MULTILINE)
    blocks = [block for block in blocks if block.strip()]
    asked = [" ".join(line for line in block.split("\n") if not _OPTION.match(line)) for block in blocks]
    return (
        len(blocks) == 4
        and all(block.lstrip(" #*").startswith("Question") for block in blocks)
        and all(sum(_OPTION.match(line) is not None for line in block.split("\n")) == 5 for block in blocks)
        and all(len(one.strip()) < len(other.strip()) for one, other in pairwise(asked))
    )


def _reversed_countries(text: str, given: Mapping[str, Any]) -> bool:
    lines = [_plain(line.lstrip("-*\u2022 ")) for line in text.strip().split("\n") if line.strip()]
    return len(lines) in _AFRICA and all(one > other for one, other in pairwise(lines)) and _SURE.issubset(lines)


def _from_a_to_z(text: str, given: Mapping[str, Any]) -> bool:
    firsts = [words(one)[0][0].lower() for one in sentences(text) if words(one)]
    return "".join(firsts) == "abcdefghijklmnopqrstuvwxyz"


CUSTOM: Mapping[str, tuple[str, Callable[[str, Mapping[str, Any]], bool]]] = {
    "custom:character_reverse": (
        "write the sentence backwards letter by letter, and let it be right",
        lambda text, given: "bald eagle" in text[::-1].lower() and "eagle" not in text.lower(),
    ),
    "custom:csv_city": (
        "write CSV with the columns ID, Country, City, Year, Count and 7 rows, with commas",
        lambda text, given: _table(text, ["ID", "Country", "City", "Year", "Count"], 7, ","),
    ),
    "custom:csv_quotes": (
        "write CSV with the columns StudentID, Subject, Grade, Semester, Score and 3 rows, with tabs, and every field in double quotes",
        _quoted_table,
    ),
    "custom:csv_special_character": (
        "write CSV with the columns ProductID, Category, Brand, Price, Stock and 14 rows, with commas, and a field with a special character in double quotes",
        _special_character,
    ),
    "custom:date_format_list": ("list dates as YYYY-MM-DD with commas between them, and nothing else", _dates),
    "custom:european_capitals_sort": (
        "list the capitals of Europe north of 45 degrees by latitude from north to south, with commas between them and nothing else",
        _capitals,
    ),
    "custom:mcq_count_length": (
        "write 4 questions that start with Question, each with 5 options and longer than the one before, and nothing else",
        _multiple_choice,
    ),
    "custom:multiples": (
        "print the multiples of 7 from 10 to 50 and no other number",
        lambda text, given: re.findall(r"\d+", text) == ["14", "21", "28", "35", "42", "49"],
    ),
    "custom:reverse_newline": (
        "list the countries of Africa in reverse alphabetical order, one a line, and nothing else",
        _reversed_countries,
    ),
    "custom:sentence_alphabet": ("write 26 sentences whose first words start with A, B, C and so on to Z", _from_a_to_z),
    "custom:word_reverse": (
        "write the sentence backwards word by word, and let it be right",
        lambda text, given: "bald eagle" in " ".join(reversed(words(text))).lower(),
    ),
}
"""As ``IFBENCH``."""
