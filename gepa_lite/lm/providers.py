"""What litellm knows without the network: providers, keys, windows and prices."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from gepa_lite.lm.faults import shown_url
from gepa_lite.lm.protocol import LMInfo, Structured

_SIGN_INS = {"azure": ("AZURE_AD_TOKEN", "AZURE_CLIENT_ID"), "anthropic": ("ANTHROPIC_AUTH_TOKEN",)}
"""Further ways to sign in that take the place of a key."""


@cache
def load_litellm() -> Any:
    """Import litellm, quiet and without the network.

    The price map and header table that ship with litellm are used, unless the user's environment says otherwise, since fetching them
    would make prices depend on the day. ``suppress_debug_info`` is set once, since litellm prints to stdout otherwise; a user may set it
    back. No other setting of litellm is touched, here or later.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    # by name, so that type checkers do not follow into it
    litellm: Any = import_module("litellm")
    litellm.suppress_debug_info = True
    return litellm


def find_provider(model: str, api_base: str | None = None) -> tuple[str, str] | None:
    """The provider and its own name for the model, or None where litellm knows no such provider. Never touches the network."""
    litellm = load_litellm()
    try:
        name, provider, _, _ = litellm.get_llm_provider(model, api_base=api_base)
    except Exception:  # litellm raises BadRequestError, and whatever its provider modules raise on odd names
        return None
    return str(provider), str(name)


def missing_key(model: str, api_base: str | None = None) -> str | None:
    """The environment variable that must hold this model's key and does not, or None.

    A server on this machine or in a private network is taken to need no key. Providers that sign in by other means than a key (AWS,
    Google Cloud) are not judged: their own error comes with the first call. Never touches the network.

    Args:
        model: as for ``LiteLLM``.
        api_base: the endpoint, if it is not the provider's own.
    """
    found = find_provider(model, api_base)
    if found is None:
        return None
    provider = found[0]
    if is_private(api_base or set_base(provider)):
        return None
    return " or ".join(absent_keys(model, provider)) or None


def look_up(model: str, api_base: str | None, max_in_flight: int, settings: str = "") -> LMInfo:
    """What litellm's map knows of a model. Never touches the network.

    Args:
        model: as for ``LiteLLM``.
        api_base: the endpoint, if it is not the provider's own.
        max_in_flight: the client's cap.
        settings: see ``LMInfo``.
    """
    litellm = load_litellm()
    provider, name = find_provider(model, api_base) or ("", model)
    entry = _map_entry(litellm.model_cost, model, provider, name)
    structured: Structured = "none"
    # for ollama litellm asks the server; the map alone must do
    if entry.get("supports_response_schema") or (not provider.startswith("ollama") and litellm.supports_response_schema(model)):
        structured = "json_schema"
    window = _number(entry.get("max_input_tokens")) or _number(entry.get("max_tokens"))
    return LMInfo(
        name=model,
        endpoint=shown_url(api_base or set_base(provider) or ""),
        context_window=None if window is None else int(window),
        usd_per_input_token=_number(entry.get("input_cost_per_token")),
        usd_per_output_token=_number(entry.get("output_cost_per_token")),
        structured=structured,
        max_in_flight=max_in_flight,
        settings=settings,
    )


def near_models(name: str) -> tuple[str, ...]:
    """Up to three chat models of litellm's map, with their providers, whose names are most like this one, best first."""
    by_lower: dict[str, str] = {}
    prices = load_litellm().model_cost
    # names without a slash are the makers' own: they come last, so that they win over resellers of the same name
    for key in sorted(prices, key=lambda key: ("/" not in key, key)):
        if prices[key].get("mode") in ("chat", "completion", "responses"):
            full = key if "/" in key else f"{prices[key].get('litellm_provider', 'openai')}/{key}"
            # a bare name is compared with bare names, or its missing prefix would count against it
            by_lower[(full if "/" in name else full.rpartition("/")[2]).lower()] = full
    return tuple(by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6) if match != name.lower())


def set_base(provider: str) -> str | None:
    """The endpoint that the user's environment or litellm settings name for a provider."""
    names = (f"{provider.upper()}_BASE_URL", f"{provider.upper()}_API_BASE")
    return vars(load_litellm()).get("api_base") or next((os.environ[name] for name in names if os.environ.get(name)), None)


def absent_keys(model: str, provider: str) -> list[str]:
    """The variables of which one should hold a key; empty where there is a key, or another way to sign in, or none is needed."""
    litellm = load_litellm()
    set_in_code = vars(litellm).get("api_key") or vars(litellm).get(f"{provider}_key")
    if set_in_code or any(os.environ.get(name) for name in _SIGN_INS.get(provider, ())):
        return []
    missing = [
        name for name in litellm.validate_environment(model)["missing_keys"] if name.endswith("API_KEY") and not os.environ.get(name)
    ]
    # litellm takes an empty variable for a key
    empty = [name for name in (f"{provider.upper()}_API_KEY",) if os.environ.get(name) == ""]
    return missing or empty


def is_private(url: str | None) -> bool:
    """Whether a URL's host is this machine or in a private network."""
    host = urlsplit(url).hostname if url else None
    if not host:
        return False
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


def _map_entry(prices: Mapping[str, Any], model: str, provider: str, name: str) -> Mapping[str, Any]:
    """The model's entry in litellm's map; a bare name counts only where its provider is the same, since prices differ between providers."""
    for key in (model, f"{provider}/{name}"):
        if isinstance(prices.get(key), Mapping):
            return dict(prices[key])
    entry = prices.get(name)
    if isinstance(entry, Mapping) and str(entry.get("litellm_provider", "")).startswith(provider or " "):
        return entry
    return {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
