"""holdfast policy test: does every rule do what it says, in the policy that is in force here?"""

from __future__ import annotations

import click

from holdfast.cli.opening import reading
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, global_options, verb
from holdfast.cli.words import count
from holdfast.errors import InvalidInput

command = click.Group("policy", help="Check the policy.", no_args_is_help=False, params=global_options())


@verb(name="test")
def test(face: Face) -> None:
    """Run the self-tests of every rule; exit 2 when one fails."""
    from holdfast.gates.layers import layered
    from holdfast.gates.self_tests import count_self_tests, run_self_tests
    from holdfast.store.own_settings import settings_of

    screen = face.screen
    with reading(face) as hf:
        settings = settings_of(hf.path)
    policy = layered(settings.policy)
    failures = run_self_tests(policy)
    tests = count_self_tests(policy)
    told = {"rules": len(policy.rules), "tests": tests, "digest": policy.digest}
    if failures:
        screen.attach("policy", {**told, "failures": [failure.sentence for failure in failures]})
        raise InvalidInput("\n".join(shown(failure.sentence) for failure in failures), hint="Nothing is decided by it.")
    layers = ", ".join(["built-in", *(source.layer for source in settings.policy)])
    screen.answer({"kind": "policy", "id": policy.digest[:16], "status": "ok", **told})
    screen.say(f"{count(len(policy.rules), 'rule')} ({layers}), {count(tests, 'self-test')} pass.")


command.add_command(test)
