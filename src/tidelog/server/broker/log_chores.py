"""What a node does with its logs on its own: it syncs, deletes, compacts, looks for rot, and repairs.

Kafka: `LogManager`.
"""

from __future__ import annotations

from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.metadata.configs import BrokerSettings
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.cleaner import Cleaner
from tidelog.server.broker.damage_repair import DamageRepair
from tidelog.server.broker.dynamic_configs import DynamicConfigs
from tidelog.server.broker.log_maintenance import LogMaintenance
from tidelog.server.broker.scrubber import Scrubber
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks


class LogChores:
    """All chores of a node's logs.

    Args:
        settings: of the broker, as they are in force at first.
    """

    def __init__(
        self,
        config: NodeConfig,
        settings: BrokerSettings,
        broker: Broker,
        files: LogFiles,
        *,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        rng: Rng,
    ) -> None:
        self._maintenance = LogMaintenance(config, files, broker, clock=clock, executor=executor)
        self._cleaner = Cleaner(broker, settings, disk=disk, clock=clock, executor=executor)
        self._scrubber = Scrubber(broker, settings, disk=disk, clock=clock, executor=executor, rng=rng)
        self._repair = DamageRepair(broker, disk=disk, clock=clock, executor=executor)

    def start(self, tasks: Tasks, dynamic_configs: DynamicConfigs) -> None:
        """Run them as tasks of the node, by the settings that are in force at each time."""
        dynamic_configs.follow(self._cleaner)
        dynamic_configs.follow(self._scrubber)
        for chore in (self._maintenance, self._cleaner, self._scrubber, self._repair):
            tasks.start(chore.run())
