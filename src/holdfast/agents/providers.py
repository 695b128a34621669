"""Providers of models: where they are, and which variable of our own environment holds the key. The agent sees neither.

Prices are not built in: they change, and a wrong price is a wrong budget. Whoever sets a limit in money states them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from holdfast.errors import InvalidInput
from holdfast.model.agent import Api
from holdfast.model.agent_settings import AgentSettings, ProviderSettings
from holdfast.model.configuration import Settings
from holdfast.model.path import printable

BUILT_IN: tuple[ProviderSettings, ...] = (
    ProviderSettings("anthropic", "https://api.anthropic.com", ("anthropic",), "ANTHROPIC_API_KEY"),
    ProviderSettings("openai", "https://api.openai.com", ("openai", "responses"), "OPENAI_API_KEY"),
    ProviderSettings("gemini", "https://generativelanguage.googleapis.com", ("gemini",), "GEMINI_API_KEY"),
)
_MOST_KEY = 4096


def provider_for(settings: Settings, name: str, api: Api | None) -> ProviderSettings:
    """The provider of this name, or the first that speaks this wire; InvalidInput when there is none."""
    known = (*settings.providers, *(each for each in BUILT_IN if settings.provider(each.name) is None))
    if name:
        found = next((each for each in known if each.name == name), None)
        if found is None:
            raise InvalidInput(
                f"there is no provider {printable(name)}",
                hint=f"Known: {', '.join(each.name for each in known)}. Add one under [providers.{printable(name)}].",
            )
    else:
        found = next((each for each in known if api is None or api in each.apis), None)
        if found is None:
            raise InvalidInput(f"no provider speaks {api}", hint="Add one under [providers] in your config.toml.")
    if api is not None and api not in found.apis:
        raise InvalidInput(f"the provider {found.name} speaks {', '.join(found.apis)}, and the agent needs {api}")
    return found


def key_of(provider: ProviderSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Its key; InvalidInput says where one was looked for, and never what was found."""
    if provider.key_file:
        path = os.path.expanduser(provider.key_file)
        return _checked(_key_in(provider, path), provider, printable(path))
    if not provider.key_env:
        return "none"  # a model on this machine that asks for no key
    key = environment.get(provider.key_env, "").strip()
    if not key:
        raise InvalidInput(
            f"there is no key for {provider.name}: {provider.key_env} is not set",
            hint="Set it in the shell that starts holdfast; agents never see it.",
        )
    return _checked(key, provider, provider.key_env)


def require_price(provider: ProviderSettings, own: AgentSettings) -> None:
    """InvalidInput where money is limited and nothing says what a model costs: it could cost anything."""
    if own.micro_usd is None:
        return
    if any(own.model.startswith(price.model) or not own.model for price in provider.prices):
        return
    model = f"the model {printable(own.model)}" if own.model else "any model"
    raise InvalidInput(
        f"{printable(own.name)} has a limit in dollars, and {provider.name} states no price for {model}",
        hint=f"State it under [providers.{provider.name}.prices], in dollars for a million tokens; "
        "or limit tokens instead.",
    )


def _key_in(provider: ProviderSettings, path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise InvalidInput(f"the key of {provider.name} cannot be read: {printable(path)}: {reason}") from error
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput(f"the key of {provider.name} is not a file: {printable(path)}")
        if about.st_mode & 0o077 or about.st_uid not in (os.geteuid(), 0):
            raise InvalidInput(
                f"the key of {provider.name} is open to others: {printable(path)}",
                hint="It must belong to you, and nobody else may read or write it: chmod 600",
            )
        key = os.read(fd, _MOST_KEY + 1).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)
    if not key:
        raise InvalidInput(f"the key of {provider.name} is empty: {printable(path)}")
    return key


def _checked(key: str, provider: ProviderSettings, where: str) -> str:
    """A key becomes part of a header: one word, nothing that could end it or begin another."""
    if len(key) > _MOST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidInput(
            f"the key of {provider.name} in {where} is no key: it must be one word of printable ASCII, "
            f"at most {_MOST_KEY} characters"
        )
    return key
