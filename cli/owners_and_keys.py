"""Commands on API keys and owners, and on the audit log."""

import itertools
import time
from typing import Annotated, Final

import typer

from mallorn.cli.dataset_options import dataset
from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.terminal import output
from mallorn.cli.terminal.option_groups import command_group
from mallorn.core.api_keys import USUAL_SCOPES, OwnerAction, Scope
from mallorn.core.values.access_control import ApiKey, AuditEntry, NewApiKey, OwnerStatus
from mallorn.wording.format_values import Column, format_age, format_duration, format_moment

NONE_YET: Final = "no keys yet; make the first one with   mallorn keys create NAME --scope admin"
KEY_COLUMNS: Final = (
    Column[ApiKey]("KEY", lambda key: key.id),
    Column[ApiKey]("OWNER", lambda key: key.owner),
    Column[ApiKey]("NAME", lambda key: key.name),
    Column[ApiKey]("MAY", lambda key: ", ".join(key.scopes)),
    Column[ApiKey]("STATE", lambda key: state_of(key)),
    Column[ApiKey]("USED", lambda key: _since(key.last_used_at) or "never"),
    Column[ApiKey]("MADE", lambda key: _since(key.created_at)),
)
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as the list shows it.")]
keys_app = command_group("List, create, rotate or revoke API keys.")


@keys_app.command("list")
def keys(as_json: output.JsonOption = False, *, place: output.Place) -> None:
    """List your API keys; an admin sees those of all owners."""
    with output.client(*place) as api:
        rows = api.api_keys()
    output.print_rows(rows, KEY_COLUMNS, as_json, NONE_YET)


@keys_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for, or who uses it.")],
    owner: Annotated[
        str | None, typer.Option(help="Owner of the jobs and models that it gives access to; default: you.")
    ] = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="What requests with it may do; repeatable. Default: read and submit."),
    ] = None,
    days: Annotated[float | None, typer.Option(min=0.001, help="Days until it expires.")] = None,
    writes_database: Annotated[
        bool,
        typer.Option(
            "--here", help="Write it into this host's database; for the first key, or if all are lost."
        ),
    ] = False,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Create a key and print it. It is not shown again: only its SHA-256 is stored."""
    scopes = tuple(scope or USUAL_SCOPES)
    if writes_database:
        with dataset(place.data, None, create=True) as database, database.transaction() as session:
            from mallorn.db.repositories.access_control import ApiKeys, Audit

            key = ApiKeys(session).create(owner or name, name, scopes, days)
            Audit(session).add_local_change(key.owner, f"key {key.id}, which may {', '.join(key.scopes)}")
    else:
        with output.client(*place) as api:
            key = api.create_key(name, owner, scopes, days)
    _print_new_key(key, as_json)


@keys_app.command()
def rotate(
    key: KeyArgument,
    grace: Annotated[float, typer.Option(min=0, help="Minutes for which the old secret stays valid.")] = 0.0,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Replace a key's secret and print the key, once. Needs this key or an admin's."""
    with output.client(*place) as api:
        _print_new_key(api.rotate_key(key, grace), as_json)


@keys_app.command()
def revoke(key: KeyArgument, yes: output.YesOption = False, *, place: output.Place) -> None:
    """Revoke a key: the service refuses it, and browsers that signed in with it."""
    with output.client(*place) as api:
        api_key = next((row for row in api.api_keys() if row.id == key), None)
        details = f" ({api_key.name}, of {api_key.owner})" if api_key else ""
        output.confirm_or_exit(f"Revoke the key {key}{details}?", f"mallorn keys revoke {key} --yes", yes)
        api.revoke_key(key)
    output.print_note(f"revoked {key}")


def state_of(key: ApiKey) -> str:
    """Return a text on whether a key is valid (and how much longer), revoked or expired."""
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "good"
    left_sec = key.expires_at - time.time()
    return f"good for {format_duration(left_sec)}" if left_sec > 0 else "expired"


def _since(at_sec: float | None) -> str | None:
    return None if at_sec is None else format_age(max(0.0, time.time() - at_sec))


def _print_new_key(key: NewApiKey, as_json: bool) -> None:
    if as_json:
        return output.print_json(key)
    output.stdout().print(key.key)
    output.print_note(f"key {key.id} of {key.owner}, may {', '.join(key.scopes)}; it is not shown again")
    output.print_note("to use it: export MALLORN_API_KEY=...   (the service answers nobody without a key)")


OWNER_COLUMNS: Final = (
    Column[OwnerStatus]("OWNER", lambda owner: owner.owner),
    Column[OwnerStatus]("BANNED", lambda owner: owner.banned_at and format_moment(owner.banned_at)),
)
OwnerArgument = Annotated[
    str, typer.Argument(metavar="OWNER", help="The owner's name, as in the lists of keys and jobs.")
]
HereOption = Annotated[bool, typer.Option("--here", help="Change this host's database, without a key.")]
owners_app = command_group("List owners, what they changed, and who is banned; sign out, ban or readmit one.")


@owners_app.command("list")
def owners(as_json: output.JsonOption = False, *, place: output.Place) -> None:
    """List all owners, and who is banned."""
    with output.client(*place) as api:
        output.print_rows(api.owners(), OWNER_COLUMNS, as_json, "no owners yet")


def _add_owner_command(action: OwnerAction, words: str, question: str = "") -> None:
    def command(
        owner: OwnerArgument,
        yes: output.YesOption = False,
        writes_database: HereOption = False,
        *,
        place: output.Place,
    ) -> None:
        output.confirm_or_exit(
            f"{question} {owner}?", f"mallorn owners {action} {owner} --yes", yes or not question
        )
        if writes_database:
            with dataset(place.data, None) as database:
                from mallorn.db.repositories.access_control import Audit, apply_owner_action

                name = apply_owner_action(database, action, owner).owner
                with database.transaction() as session:
                    Audit(session).add_local_change(name, f"{action} of this owner")
        else:
            with output.client(*place) as api:
                name = api.change_owner_access(owner, action).owner
        output.print_note(f"{action}: {owner}" + (f", from now on {name}" if name != owner else ""))

    owners_app.command(action, help=words)(command)


_add_owner_command(OwnerAction.SIGN_OUT, "End all browser sessions of an owner; keys stay valid.")
_add_owner_command(
    OwnerAction.BAN,
    "Ban an owner: keys are revoked, browser sessions end, jobs are cancelled. A key in the coordinators' "
    "MALLORN_API_KEYS is refused meanwhile, too; remove it there.",
    "Revoke all keys and cancel all jobs of",
)
_add_owner_command(
    OwnerAction.READMIT,
    "Let a banned owner sign in and get new keys; old keys stay revoked.",
)
_add_owner_command(
    OwnerAction.ERASE,
    "Ban an owner and erase the name: jobs, keys and audit log stay, under another name.",
    "Ban and erase for ever",
)


AUDIT_COLUMNS: Final = (
    Column[AuditEntry]("AT", lambda entry: format_moment(entry.at)),
    Column[AuditEntry]("OWNER", lambda entry: entry.owner),
    Column[AuditEntry]("KEY", lambda entry: entry.key_id or None),
    Column[AuditEntry]("STATUS", lambda entry: entry.status),
    Column[AuditEntry]("WHAT", lambda entry: f"{entry.method} {entry.path}"),
    Column[AuditEntry]("ABOUT", lambda entry: f"{entry.subject}: {entry.detail}" if entry.subject else None),
)


@owners_app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, help="List this many of the newest.")] = 50,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """List requests that changed something or tried to, newest first. An admin sees those of all owners."""
    with open_reader(*place) as api:
        rows = list(itertools.islice(api.audit(page_size=min(limit, 500)), limit))
    output.print_rows(rows, AUDIT_COLUMNS, as_json, "nobody has changed anything yet")
