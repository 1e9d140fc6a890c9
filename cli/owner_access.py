"""`mallorn owners`: lists, bans, readmits and erases owners, for admins and the host's user."""

from typing import Annotated, Final

import typer

from cli.dataset_options import dataset
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, Place, YesOption, ask, client, print_note, print_rows
from mallorn.core.api_keys import OwnerDeed
from mallorn.core.values.access_control import OwnerStatus
from mallorn.wording.format_values import Column, moment

COLUMNS: Final = (
    Column[OwnerStatus]("OWNER", lambda owner: owner.owner),
    Column[OwnerStatus]("PUT OUT", lambda owner: owner.put_out_at and moment(owner.put_out_at)),
)
OwnerArgument = Annotated[
    str, typer.Argument(metavar="OWNER", help="The owner's name, as in the lists of keys and jobs.")
]
HereOption = Annotated[bool, typer.Option("--here", help="Change this host's database, without a key.")]
app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
@shared
def owners(ctx: typer.Context, as_json: JsonOption = False, *, place: Place) -> None:
    """List all owners, and who was put out (banned)."""
    if ctx.invoked_subcommand is None:
        with client(*place) as api:
            print_rows(api.owners(), COLUMNS, as_json, "no owners yet")


def _command(deed: OwnerDeed, words: str, question: str = "") -> None:
    @shared
    def command(
        owner: OwnerArgument, yes: YesOption = False, here: HereOption = False, *, place: Place
    ) -> None:
        ask(f"{question} {owner}?", f"mallorn owners {deed} {owner} --yes", yes or not question)
        if here:
            with dataset(place.data, None) as database:
                from db.repositories.owner_access import treat

                name = treat(database, deed, owner).owner
        else:
            with client(*place) as api:
                name = api.treat_owner(owner, deed).owner
        print_note(f"{deed}: {owner}" + (f", from now on {name}" if name != owner else ""))

    app.command(deed, help=words)(command)


_command(OwnerDeed.SIGN_OUT, "End all browser sessions of an owner; keys stay valid.")
_command(
    OwnerDeed.PUT_OUT,
    "Ban an owner: keys are revoked, browser sessions end, jobs are cancelled. A key in the coordinators' "
    "MALLORN_API_KEYS is refused meanwhile, too; remove it there.",
    "Revoke all keys and cancel all jobs of",
)
_command(OwnerDeed.LET_IN, "Let a banned owner sign in and get new keys; old keys stay revoked.")
_command(
    OwnerDeed.ERASE,
    "Ban an owner and erase the name: jobs, keys and audit log stay, under another name.",
    "Put out and forget for ever",
)
