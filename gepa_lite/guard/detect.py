"""Personal data and secrets, by well-kept libraries: phonenumbers, python-stdnum and detect-secrets. Loaded at the first look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from gepa_lite.guard.options import Span

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}\b")
_RESERVED = re.compile(r"(?i)@(?:[\w-]+\.)*(?:example\.(?:com|net|org)|[\w-]+\.(?:example|test|invalid|localhost))$")
_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_ACCOUNT = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_SOCIAL = re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])")
# bounded, so that a long row of such marks costs no more than its length
_KEY = re.compile(
    r"\b(?:sk|pk|rk|api|key|token|secret|pat)[-_](?=[\w-]{0,60}\d[\w-]{0,60}\d)(?=[\w-]{0,60}[A-Za-z])[\w-]{24,}"
    r"|\b(?:npm_|hf_|gsk_|xai-|AIza)[\w-]{30,}"
)
_LONG_WORD = re.compile(r"[\w-]{11,}")
# a random key of this length may well have no digit
_NO_WORD = 20
_PLACEHOLDER = re.compile(r"(?i)://[^:/]*:(?:pass(?:word|wd)?|pwd|secret|token|\*+|x+|<[^>]*>|\{[^}]*\}|\$\{?\w+\}?)@")

_PLUGINS = {
    "artifactory.ArtifactoryDetector": "an Artifactory token",
    "aws.AWSKeyDetector": "an AWS key",
    "azure_storage_key.AzureStorageKeyDetector": "an Azure storage key",
    "basic_auth.BasicAuthDetector": "a password in a URL",
    "discord.DiscordBotTokenDetector": "a Discord token",
    "github_token.GitHubTokenDetector": "a GitHub token",
    "gitlab_token.GitLabTokenDetector": "a GitLab token",
    "jwt.JwtTokenDetector": "a JSON web token",
    "mailchimp.MailchimpDetector": "a Mailchimp key",
    "npm.NpmDetector": "an npm token",
    "openai.OpenAIDetector": "an OpenAI key",
    "private_key.PrivateKeyDetector": "a private key",
    "pypi_token.PypiTokenDetector": "a PyPI token",
    "sendgrid.SendGridDetector": "a SendGrid key",
    "slack.SlackDetector": "a Slack token",
    "square_oauth.SquareOAuthDetector": "a Square secret",
    "stripe.StripeDetector": "a Stripe key",
    "telegram_token.TelegramBotTokenDetector": "a Telegram token",
    "twilio.TwilioKeyDetector": "a Twilio key",
}
"""Detectors with a form of their own. Those by entropy or by words such as "password:" are left out: prompts speak of passwords, and state long ids as examples."""


def personal_data(text: str, region: str | None = None) -> list[Span]:
    """E-mail addresses, phone, card and account numbers, and US social security numbers with a valid form and check digits. Addresses at reserved names such as example.com are nobody's.

    >>> personal_data("Write to ada@lovelace.org or ada@example.com, order 12345.")
    [('an e-mail address', 9, 25)]
    """
    found = [("an e-mail address", *m.span()) for m in _EMAIL.finditer(text) if not _RESERVED.search(m.group())]
    if any(letter.isdigit() for letter in text):
        found += _numbers(text)
        found += _phones(text, region)
    return _apart(found)


def secrets(text: str) -> list[Span]:
    """Keys, tokens and passwords in URLs, those such as ``https://user:password@host`` left out.

    >>> secrets("Never print ghp_" + "a1" * 18)
    [('a GitHub token', 12, 52)]
    """
    if not _may_hold_secrets(text):
        return []
    found = [
        (what, *match.span())
        for what, plugin in _detectors()
        for pattern in plugin.denylist
        for match in pattern.finditer(text)
        if not _PLACEHOLDER.match(match.group()) and any(True for _ in plugin.analyze_string(match.group()))
    ]
    found += [("a key", *match.span()) for match in _KEY.finditer(text)]
    return _apart(found)


def without_secrets(text: str) -> str:
    """A text for showing: each secret is struck out.

    >>> without_secrets("Never print ghp_" + "a1" * 18 + "!")
    'Never print ***!'
    """
    for _, start, end in reversed(secrets(text)):
        text = f"{text[:start]}***{text[end:]}"
    return text


def _may_hold_secrets(text: str) -> bool:
    """A quick look, many times faster than the detectors: every form they know is a URL, a key's frame, or has a long word, with a digit where it is not very long."""
    if "://" in text or "PRIVATE KEY" in text:
        return True
    return any(len(word) >= _NO_WORD or any(letter.isdigit() for letter in word) for word in _LONG_WORD.findall(text))


def _numbers(text: str) -> Iterator[Span]:
    from stdnum import iban, luhn
    from stdnum.us import ssn

    for match in _DIGITS.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        # a run of one digit may pass the check too, and is nobody's
        if luhn.is_valid(digits) and digits[0] in "3456" and len(set(digits)) > 1:
            yield "a card number", *match.span()
    for match in _ACCOUNT.finditer(text):
        if iban.is_valid(match.group()):
            yield "an account number", *match.span()
    for match in _SOCIAL.finditer(text):
        if ssn.is_valid(match.group()):
            yield "a social security number", *match.span()


def _phones(text: str, region: str | None) -> Iterator[Span]:
    # without a region only numbers with a country code are told from others
    if region is None and "+" not in text:
        return
    import phonenumbers

    for match in phonenumbers.PhoneNumberMatcher(text, region, leniency=phonenumbers.Leniency.VALID):
        yield "a phone number", match.start, match.end


@cache
def _detectors() -> tuple[tuple[str, Any], ...]:
    import importlib

    made = []
    for path, what in _PLUGINS.items():
        module, name = path.split(".")
        made.append((what, getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)()))
    return tuple(made)


def _apart(spans: list[Span]) -> list[Span]:
    """In order, without those that overlap an earlier one."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda item: (item[1], -item[2], item[0])):
        if not kept or span[1] >= kept[-1][2]:
            kept.append(span)
    return kept
