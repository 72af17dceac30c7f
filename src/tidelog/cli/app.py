"""The commands by name, each imported when it is first asked for: `tidelog server` pays for no other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from tidelog.cli.command import CONTEXT_SETTINGS, FAILED, INTERRUPTED, USAGE, complain, to_click

COMMANDS: dict[str, str | dict[str, str]] = {
    "up": "tidelog.cli.up:Up",
    "server": "tidelog.cli.server:Server",
    "topics": {
        "create": "tidelog.cli.topics:CreateTopic",
        "list": "tidelog.cli.topics:ListTopics",
        "describe": "tidelog.cli.topics:DescribeTopics",
        "alter": "tidelog.cli.topics:AlterTopic",
        "delete": "tidelog.cli.topics:DeleteTopics",
    },
    "produce": "tidelog.cli.produce:Produce",
    "consume": "tidelog.cli.consume:Consume",
    "groups": {
        "list": "tidelog.cli.groups:ListGroups",
        "describe": "tidelog.cli.groups:DescribeGroups",
        "delete": "tidelog.cli.groups:DeleteGroups",
        "reset-offsets": "tidelog.cli.group_offsets:ResetOffsets",
    },
    "losses": {
        "list": "tidelog.cli.losses:ListLosses",
        "describe": "tidelog.cli.losses:DescribeLoss",
        "export": "tidelog.cli.losses:ExportLoss",
        "acknowledge": "tidelog.cli.losses:AcknowledgeLosses",
    },
    "transactions": {
        "list": "tidelog.cli.transactions:ListTransactions",
        "describe": "tidelog.cli.transactions:DescribeTransactions",
        "producers": "tidelog.cli.transactions:DescribeProducers",
        "find-hanging": "tidelog.cli.transactions:FindHanging",
        "abort": "tidelog.cli.transactions:AbortTransaction",
    },
    "configs": {
        "describe": "tidelog.cli.configs:DescribeConfigs",
        "alter": "tidelog.cli.configs:AlterConfigs",
    },
    "profiles": {
        "list": "tidelog.cli.profiles:ListProfiles",
        "show": "tidelog.cli.profiles:ShowProfile",
        "add": "tidelog.cli.profiles:AddProfile",
        "remove": "tidelog.cli.profiles:RemoveProfile",
    },
    "acls": {
        "list": "tidelog.cli.acls:ListAcls",
        "allow": "tidelog.cli.acls:AllowAcls",
        "deny": "tidelog.cli.acls:DenyAcls",
        "remove": "tidelog.cli.acls:RemoveAcls",
    },
    "users": {
        "list": "tidelog.cli.users:ListUsers",
        "add": "tidelog.cli.users:AddUser",
        "password": "tidelog.cli.users:ChangePassword",
        "remove": "tidelog.cli.users:RemoveUser",
    },
    "quotas": {
        "list": "tidelog.cli.quotas:ListQuotas",
        "set": "tidelog.cli.quotas:SetQuotas",
        "remove": "tidelog.cli.quotas:RemoveQuotas",
    },
    "tokens": {
        "create": "tidelog.cli.tokens:CreateToken",
        "list": "tidelog.cli.tokens:ListTokens",
        "renew": "tidelog.cli.tokens:RenewToken",
        "expire": "tidelog.cli.tokens:ExpireToken",
    },
    "elect": "tidelog.cli.elect:ElectLeaders",
    "reassign": {
        "plan": "tidelog.cli.reassign:PlanReassignment",
        "run": "tidelog.cli.reassign:RunReassignment",
        "status": "tidelog.cli.reassign:ReassignmentStatus",
        "cancel": "tidelog.cli.reassign:CancelReassignment",
    },
    "cluster": {
        "describe": "tidelog.cli.cluster:DescribeCluster",
        "unregister": "tidelog.cli.cluster:UnregisterBroker",
    },
    "quorum": {
        "describe": "tidelog.cli.quorum:DescribeQuorum",
        "add-voter": "tidelog.cli.quorum:AddVoter",
        "remove-voter": "tidelog.cli.quorum:RemoveVoter",
    },
    "features": {
        "describe": "tidelog.cli.features:DescribeFeatures",
        "upgrade": "tidelog.cli.features:UpgradeFeatures",
        "downgrade": "tidelog.cli.features:DowngradeFeatures",
    },
    "log": {
        "dump": "tidelog.cli.log:DumpLog",
        "directories": "tidelog.cli.log_dirs:ShowLogDirectories",
        "lineage": "tidelog.cli.lineage:ShowLineage",
        "move": "tidelog.cli.log_dirs:MoveLog",
    },
    "storage": {
        "format": "tidelog.cli.storage:FormatStorage",
        "random-uuid": "tidelog.cli.storage:RandomUuid",
    },
    "spark": {
        "offsets": "tidelog.cli.spark:CheckpointOffsets",
        "audit": "tidelog.cli.spark_audit:AuditTable",
    },
    "demo": "tidelog.cli.demo:Demo",
    "sim": {
        "run": "tidelog.cli.sim:RunSimulations",
    },
}
"""In the order in which a newcomer needs them. A class is named by where it is."""

GROUP_HELP = {
    "topics": "Create, list, describe, alter and delete topics.",
    "groups": "See how far consumer groups have read, and change it.",
    "losses": "See which records the cluster has lost, or may have, and who may still hold them.",
    "transactions": "See which transactions are open, and abort those that hang.",
    "configs": "See and change the settings of topics and brokers.",
    "profiles": "Give names to what commands connect with.",
    "acls": "See and change who may do what.",
    "users": "See and change who connects with a SCRAM password.",
    "quotas": "See and change what clients may do in a second.",
    "tokens": "Give jobs delegation tokens to log in with, and take them back.",
    "reassign": "Move partitions to other brokers.",
    "cluster": "See the brokers, and forget one that is gone.",
    "quorum": "See who keeps the metadata, and change who votes.",
    "features": "See and change what the whole cluster works at.",
    "log": "Look into logs: their files, their directories, the leader epochs of their replicas.",
    "storage": "Prepare the directory of a node.",
    "spark": "Look into the checkpoints of Spark's queries, and audit their tables.",
    "sim": "Run nodes on a virtual clock, and let things go wrong.",
}

HELP = """A replicated log that speaks Kafka's protocol, and says so when it lost something.

Start with a broker in one terminal, and a line through it in another:

\b
    tidelog up
    echo 'hello' | tidelog produce greetings
    tidelog consume greetings --from-beginning --count 1
"""


class LazyGroup(click.Group):
    """A group whose commands are classes named as `module:Class`."""

    def __init__(self, name: str, table: Mapping[str, str | dict[str, str]], help_text: str, **settings: Any) -> None:
        super().__init__(name, help=help_text, no_args_is_help=False, **settings)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry, dict):
            return LazyGroup(cmd_name, entry, GROUP_HELP[cmd_name], context_settings=CONTEXT_SETTINGS)
        module, _, name = entry.partition(":")
        return to_click(cmd_name, getattr(import_module(module), name))


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tidelog {version('tidelog')}")
        context.exit()


root = LazyGroup(
    "tidelog",
    COMMANDS,
    HELP,
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Say which."
        )
    ],
    context_settings=CONTEXT_SETTINGS,
)


def run(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name. Returns its exit status: 0 done, 1 failed, 2 usage, 130 interrupted."""
    foreign = next((one for one in arguments if _is_foreign(one)), None)
    if foreign is not None:
        complain(f"{foreign!r} is not UTF-8: type it anew, or set the terminal to UTF-8")
        return USAGE
    try:
        status = root.main(args=list(arguments), prog_name="tidelog", standalone_mode=False)
    except click.UsageError as error:
        if error.ctx is None:
            complain(_told(error))
        else:
            print(error.ctx.get_usage(), file=sys.stderr)
            complain(f"{_told(error)} See '{error.ctx.command_path} --help'.")
        return USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return FAILED
    except click.Abort:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _is_foreign(text: str) -> bool:
    """Whether it was typed as bytes that are no UTF-8, which neither a broker nor a file of settings can take."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _told(error: click.UsageError) -> str:
    """What click says, as one sentence, in words that say nothing of Python's types."""
    said = " ".join(error.format_message().split())
    for kind, words in (("integer", "a whole number"), ("float", "a number")):
        said = said.replace(f"is not a valid {kind} range", f"is not {words}").replace(
            f"is not a valid {kind}", f"is not {words}"
        )
    return said if said.endswith((".", "?")) else f"{said}."


def main() -> NoReturn:
    """The `tidelog` command: never returns."""
    sys.exit(run(sys.argv[1:]))
