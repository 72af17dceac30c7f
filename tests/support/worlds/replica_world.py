"""Replicas of one partition, joined in memory: real machines, logs as lists, a controller, and a network that may lose,
repeat and reorder. Whoever drives it decides what happens next; `check` says whether what must hold still does.

A request and its answer are messages. A crash keeps what was written; what lies in the network from before it reaches
nobody. The controller's metadata is a history that each replica applies in order, at its own pace.
"""

from __future__ import annotations

from support.worlds.replica_values import (
    Answer,
    Ask,
    Message,
    Node,
    Propose,
    Rules,
    Stored,
    broker_image,
    name_of,
    text_of,
)
from support.worlds.replica_view import view_of
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    CorrelationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicPartition,
)
from tidelog.controller.isr_changes import IsrChange, IsrMember, alter_partition
from tidelog.controller.partition_changes import elected, led_by, led_uncleanly_by
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import EpochEntry
from tidelog.replica import (
    AcceptedFetch,
    Acknowledgement,
    EpochEndRequest,
    FetchOutcome,
    FollowerFetch,
    FollowerReplica,
    FollowerSettings,
    FollowerState,
    LeaderReplica,
    LogBounds,
    LogStartRequest,
    RecordsRequest,
    ReplicationSettings,
    check_leader_epoch,
)
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.partition import PartitionCheckers

PARTITION = TopicPartition("story", PartitionIndex(0))
PRODUCE_MS_MAX = 1_000
FETCH_RECORDS_MAX = 2
FIRST_LEADER = BrokerId(1)


class InvariantBrokenInWorldError(AssertionError):
    """What must hold does not; the message begins with the name of the invariant."""


class ReplicaWorld:
    """A partition of a few replicas, all of them in sync."""

    def __init__(
        self,
        replica_count: int = 3,
        *,
        min_insync: int = 1,
        rules: Rules | None = None,
        first_leader: BrokerId = FIRST_LEADER,
    ) -> None:
        self.rules = Rules() if rules is None else rules
        self.settings = ReplicationSettings(min_insync, lag_ms_max=30, proposal_backoff_ms=10)
        ids = tuple(BrokerId(number) for number in range(1, replica_count + 1))
        first = PartitionImage(ids, ids, first_leader, LeaderEpoch(0), PartitionEpoch(0))
        self.history = [first]
        self.nodes = {broker: Node(broker, self.rules.new_log()) for broker in ids}
        self.messages: list[Message] = []
        self.now_ms = 0
        self.checkers = PartitionCheckers(PartitionHistory(self._min_insync - 1))
        self.produced = 0
        self.events: list[str] = []  # what a reader of a story is told beside the logs
        self.waiting: dict[CorrelationId, Offset] = {}  # the producers that wait for acks=all, and the end of it
        for node in self.nodes.values():
            self._apply(node)

    @property
    def state(self) -> PartitionImage:
        """As the controller has it."""
        return self.history[-1]

    # What an operator, a producer, a network and time do.

    def produce(self, broker: BrokerId, value: str, *, acks_all: bool = False) -> None:
        """Append a record at a broker that believes that it leads."""
        node = self.nodes[broker]
        assert node.leader is not None
        if acks_all:
            try:
                node.leader.check_enough_replicas()
            except KafkaError as error:
                self.events.append(f"{name_of(broker)} refuses {value}: {error.code.name}")
                return
        values = [record.value for record in node.log.records]
        is_duplicate = value in values  # as its sequence number tells
        if is_duplicate:
            end_offset = Offset(values.index(value) + 1)
        else:
            node.log.append([Stored(node.leader.leader_epoch, value)])
            end_offset = node.log.end_offset
            node.leader.on_appended(end_offset, self.now_ms)
        if acks_all:
            self.produced += 1
            number = CorrelationId(self.produced)
            self.waiting[number] = end_offset
            if is_duplicate and self.rules.acks_duplicates:
                self._tell_producer(node, Acknowledgement(number, Code.NONE))
            else:
                node.leader.on_produced(number, end_offset, self.now_ms + PRODUCE_MS_MAX)
        self.run(node)

    def consume(self, broker: BrokerId, offset: Offset, sent: LeaderEpoch) -> None:
        """A consumer that believes in a leader epoch asks a broker, whatever its part, for one record."""
        node = self.nodes[broker]
        machine = node.leader or node.follower
        if machine is None:
            return
        who = name_of(broker)
        try:
            if node.follower is None or self.rules.serves_unreconciled:
                check_leader_epoch(PARTITION, sent=sent, leader_epoch=machine.leader_epoch)
            else:
                node.follower.check_serves(sent)
        except KafkaError as error:
            self.events.append(f"{who} refuses a consumer: {error.code.name}")
            return
        if offset >= machine.high_watermark:
            self.events.append(f"{who} has nothing for a consumer at offset {offset}")
            return
        record = node.log.records[offset]
        self.events.append(f"{who} gives a consumer {text_of(record)}")

    def apply_next(self, broker: BrokerId) -> None:
        """The broker learns the next thing that the controller decided."""
        node = self.nodes[broker]
        node.applied += 1
        self._apply(node)

    def elect(self, broker: BrokerId, *, is_unclean: bool = False) -> None:
        """Another leader, in a new leader epoch."""
        if is_unclean:
            self.history.append(led_uncleanly_by(self.state, broker))
            self.checkers.history.on_unclean_election(self.state.leader_epoch)
        else:
            self.history.append(led_by(self.state, broker, min_insync_replicas=self._min_insync))

    def crash(self, broker: BrokerId) -> None:
        """The process dies. Nobody knows of it yet; what it has written is kept."""
        node = self.nodes[broker]
        node.is_up, node.leader, node.follower, node.asked = False, None, None, None
        node.unwritten = ()

    def lose_power(self, broker: BrokerId, *, keeps: int) -> None:
        """As a crash, but only the first records are kept: the rest was not on disk yet."""
        self.crash(broker)
        node = self.nodes[broker]
        node.has_lost_power = True
        node.log.lose_power(keeps, trims_lineage=self.rules.trims_lineage)
        self.checkers.history.on_power_lost(broker)

    def lose_log(self, broker: BrokerId) -> None:
        """As a crash, but its log is gone, and neither it nor the controller knows."""
        self.crash(broker)
        node = self.nodes[broker]
        node.log = self.rules.new_log()
        self.checkers.history.on_power_lost(broker)

    def expire(self, broker: BrokerId) -> None:
        """The controller finds that the broker is gone: its leadership and its seat go."""
        self.nodes[broker].is_fenced = True
        self._leave(broker, is_lost=False)

    def restart(self, broker: BrokerId) -> None:
        """The next incarnation registers: what the last one held goes in that step, and it leads if none else may.

        One whose process died alone says so: by the epoch of the last one, which after a loss of power it cannot tell.
        """
        node, leads = self.nodes[broker], self.state.leader == broker
        if not (self.rules.keeps_epoch if leads else self.rules.keeps_seats):
            self._leave(broker, is_lost=node.has_lost_power)
        node.is_up, node.is_fenced, node.has_lost_power = True, False, False
        node.broker_epoch = BrokerEpoch(node.broker_epoch + 1)
        after = elected(self.state, min_insync_replicas=self._min_insync, is_active=self._is_active)
        if after is not None:
            self.history.append(after)
        node.applied = len(self.history) - 1  # it stays fenced until it has applied its own registration
        self._apply(node)

    def tick(self, ms: int) -> None:
        """Time passes everywhere; requests on the way for longer than that are given up."""
        self.now_ms += ms
        for node in self.nodes.values():
            if node.follower is not None:
                node.follower.on_tick(self.now_ms)
            if node.leader is not None:
                self.tell_brokers(node)
                node.leader.on_tick(self.now_ms)
            self.run(node)

    def give_up(self, broker: BrokerId) -> None:
        """Whatever this broker waits for is not answered in time."""
        node = self.nodes[broker]
        if node.follower is not None and node.asked is not None:
            node.follower.on_unanswered(node.asked.number, self.now_ms)
        if node.leader is not None:
            node.leader.on_proposal_unanswered(self.now_ms)
        self.run(node)

    def deliver(self, message: Message) -> None:
        """One message arrives. It is not taken from the network: it may arrive again."""
        match message:
            case Ask():
                self._serve(message)
            case Answer():
                self._answer(message)
            case Propose():
                self._decide_isr(message)

    # The shells around the machines.

    def run(self, node: Node, fetched: tuple[Stored, ...] = ()) -> None:
        """Do what the machine of a node says is owed, in its order; then look whether all that must hold does.

        Args:
            fetched: the records of the answer that it was told of just now.
        """
        self._do_what_is_owed(node, fetched)
        self._look()

    def _do_what_is_owed(self, node: Node, fetched: tuple[Stored, ...]) -> None:
        if node.leader is not None:
            leading = node.leader.take_ready()
            node.log.high_watermark = leading.high_watermark
            for ack in leading.acks:
                self._tell_producer(node, ack)
            if leading.isr_proposal is not None:
                self.messages.append(Propose(node.broker_id, node.broker_epoch, leading.isr_proposal))
            return
        follower = node.follower
        while follower is not None:
            ready = follower.take_ready()
            if self.rules.lowers_checkpoint or ready.high_watermark > node.log.high_watermark:
                node.log.high_watermark = ready.high_watermark
            if ready.halt is not None:
                would = f"the leader would have it cut to {ready.halt.end_offset}"
                self.events.append(f"{name_of(node.broker_id)} keeps its log and stops: {would}")
            if ready.truncation is not None:
                before = node.log.end_offset
                node.log.truncate(ready.truncation.end_offset, is_synced=self.rules.syncs_truncation)
                if before > node.log.end_offset:
                    committed = ready.truncation.below_high_watermark
                    report = "" if committed is None else f", and reports: it had thought {committed} committed"
                    self.events.append(f"{name_of(node.broker_id)} keeps {node.log.end_offset} of {before}{report}")
                follower.on_truncated(node.log.end_offset)
                continue
            if ready.ahead is not None:
                node.asked = ready.ahead
                self.messages.append(Ask(node.broker_id, node.broker_epoch, ready.ahead))
                if node.holds_writes:
                    node.unwritten = fetched
                    return
            if ready.append is not None:
                node.log.append(list(fetched))
                follower.on_appended(node.log.end_offset)
                continue
            for entry in ready.epochs:
                node.log.lineage.assign(*entry)
            if ready.request is not None:
                node.asked = ready.request
                self.messages.append(Ask(node.broker_id, node.broker_epoch, ready.request))
            return

    def write(self, broker: BrokerId) -> None:
        """A follower writes what came before the fetch that went ahead."""
        node = self.nodes[broker]
        if node.unwritten:
            assert node.follower is not None
            node.log.append(list(node.unwritten))
            node.unwritten = ()
            node.follower.on_appended(node.log.end_offset)
            self.run(node)

    def _tell_producer(self, node: Node, ack: Acknowledgement) -> None:
        """Its answer; what is acknowledged is promised from now on."""
        offset = self.waiting.pop(ack.correlation_id) - 1
        record = node.log.records[offset]
        told = "acknowledges" if ack.code is Code.NONE else f"answers {ack.code.name} for"
        self.events.append(f"{name_of(node.broker_id)} {told} {record.value}")
        if ack.code is Code.NONE and node.leader is not None:
            self.checkers.history.on_committed(node.leader.leader_epoch, offset, record)

    def _apply(self, node: Node) -> None:
        """Begin to lead or to follow, as the metadata at the node's place in history says."""
        state = self.history[node.applied]
        machine = node.leader or node.follower
        if machine is not None and machine.leader_epoch == state.leader_epoch:
            if node.leader is not None:
                self.tell_brokers(node)
                node.leader.on_state(state)
            self.run(node)
            return
        if node.leader is not None:
            node.leader.on_stopped()
            for ack in node.leader.take_ready().acks:
                self._tell_producer(node, ack)
        node.leader = node.follower = node.asked = None
        node.unwritten = ()
        bounds = LogBounds(Offset(0), node.log.end_offset, node.log.high_watermark)
        if state.leader == node.broker_id:
            node.log.lineage.assign(state.leader_epoch, node.log.end_offset)
            node.leader = self.rules.leader(
                PARTITION,
                node.broker_id,
                state,
                bounds,
                node.log.lineage,
                settings=self.settings,
                now_ms=self.now_ms,
                join=self.rules.join,
            )
            self.tell_brokers(node)
        else:
            node.follower = FollowerReplica(
                PARTITION,
                node.broker_id,
                state,
                bounds,
                node.log.lineage,
                settings=FollowerSettings(fetch_backoff_ms=5),
                truncation=self.rules.truncation,
                halts=self.rules.halts,
                ahead=self.rules.ahead,
            )
        self.run(node)

    def tell_brokers(self, node: Node) -> None:
        """A broker hears which of them the controller takes to be there, in which incarnation."""
        node.brokers = {other.broker_id: other.broker_epoch for other in self.nodes.values() if not other.is_fenced}
        if node.leader is not None:
            node.leader.on_brokers(node.brokers)

    def _serve(self, ask: Ask) -> None:
        request = ask.request
        node = self.nodes[request.leader]
        if not node.is_up:
            return
        records: tuple[Stored, ...] = ()
        outcome: KafkaError | FetchOutcome | EpochEntry | Offset | None
        try:
            state = self.history[node.applied]
            is_fetch = isinstance(request, RecordsRequest)
            if self.rules.is_fetch_fenced if is_fetch else self.rules.is_truncation_fenced:
                check_leader_epoch(PARTITION, sent=request.current_leader_epoch, leader_epoch=state.leader_epoch)
            leader = node.leader
            if leader is None:
                raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{name_of(request.leader)} does not lead")
            if isinstance(request, EpochEndRequest):
                end = leader.offset_for_leader_epoch(request.leader_epoch)
                outcome = None if end is None else EpochEntry(*end)
            elif isinstance(request, LogStartRequest):
                outcome = leader.log_start_offset
            else:
                outcome, records = self._fetch(node, leader, ask, request)
        except KafkaError as error:
            outcome = error
            if self.nodes[ask.sender].asked == request:  # else nobody waits for the answer
                self.events.append(f"{name_of(request.leader)} refuses {name_of(ask.sender)}: {error.code.name}")
        self.messages.append(Answer(ask.sender, ask.broker_epoch, request, outcome, records))

    def _fetch(
        self, node: Node, leader: LeaderReplica, ask: Ask, request: RecordsRequest
    ) -> tuple[FetchOutcome, tuple[Stored, ...]]:
        fetch = FollowerFetch(
            ask.sender,
            request.fetch_offset,
            request.current_leader_epoch if self.rules.is_fetch_fenced else None,
            request.last_fetched_epoch if self.rules.compares_last_epoch else None,
            ask.broker_epoch,
            self.now_ms,
        )
        accepted = leader.accept_fetch(fetch)
        if not isinstance(accepted, AcceptedFetch):
            if self.rules.counts_diverging:
                leader.on_fetch(AcceptedFetch(ask.sender, request.fetch_offset, ask.broker_epoch, self.now_ms))
                self.run(node)
            who = f"{name_of(node.broker_id)} tells {name_of(ask.sender)}"
            self.events.append(f"{who} that it diverged: epoch {accepted[0]} ends at {accepted[1]}")
            return FetchOutcome(diverging=accepted), ()
        leader.on_fetch(accepted)
        self.run(node)
        end_offset = min(request.fetch_offset + FETCH_RECORDS_MAX, node.log.end_offset)
        records = tuple(node.log.records[request.fetch_offset : end_offset])
        outcome = FetchOutcome(
            Offset(end_offset) if records else None,
            leader.high_watermark,
            leader.log_start_offset,
            last_leader_epoch=records[-1].leader_epoch if records else None,
        )
        return outcome, records

    def _answer(self, answer: Answer) -> None:
        node = self.nodes[answer.to]
        follower, request, outcome = node.follower, answer.request, answer.outcome
        if follower is None or node.broker_epoch != answer.broker_epoch:
            return
        if follower.leader_epoch != request.current_leader_epoch:
            return  # it answers the machine of another epoch
        self.write(answer.to)
        if isinstance(outcome, KafkaError):
            follower.on_refused(request.number, outcome.code, self.now_ms)
        elif isinstance(outcome, FetchOutcome):
            follower.on_fetched(request.number, outcome, self.now_ms)
        elif isinstance(request, LogStartRequest):
            assert isinstance(outcome, int)
            follower.on_log_start(request.number, Offset(outcome), self.now_ms)
        else:
            assert outcome is None or isinstance(outcome, EpochEntry)
            assert isinstance(request, EpochEndRequest)
            who = f"{name_of(answer.to)} asks {name_of(request.leader)} where epoch {request.leader_epoch} ends"
            if follower.state is FollowerState.TRUNCATING:
                self.events.append(f"{who}: {_told(request.leader_epoch, outcome)}")
            follower.on_epoch_end(request.number, outcome, self.now_ms)
        self.run(node, answer.records)

    # The controller.

    @property
    def _min_insync(self) -> int:
        return self.settings.min_insync_replicas

    def _is_active(self, broker: BrokerId) -> bool:
        return not self.nodes[broker].is_fenced

    def _leave(self, broker: BrokerId, *, is_lost: bool) -> None:
        left = self.rules.leaving(
            self.state,
            broker,
            min_insync_replicas=self._min_insync,
            is_active=self._is_active,
            is_lost=is_lost,
        )
        if left is not None:
            self.history.append(left)

    def _decide_isr(self, message: Propose) -> None:
        proposal = message.proposal
        tells = self.rules.checks_broker_epochs
        change = IsrChange(
            proposal.leader_epoch,
            proposal.partition_epoch,
            tuple(
                IsrMember(broker, proposal.broker_epoch(broker) if tells else None) for broker in sorted(proposal.isr)
            ),
        )
        sender = self.nodes[message.sender]
        try:
            after = alter_partition(
                self.state,
                change,
                {broker: broker_image(node) for broker, node in self.nodes.items()},
                sender=message.sender,
                sender_epoch=message.broker_epoch,
                min_insync_replicas=self._min_insync,
            )
        except KafkaError as error:
            if sender.leader is not None and sender.leader.leader_epoch == proposal.leader_epoch:
                wanted = " ".join(name_of(broker) for broker in sorted(proposal.isr))
                told = f"the controller refuses {name_of(message.sender)} the ISR {wanted}"
                self.events.append(f"{told}: {error.code.name}")
                sender.leader.on_proposal_unanswered(self.now_ms)
        else:
            self.history.append(after)

    # What must hold.

    def _look(self) -> None:
        self.checkers.check(view_of(self.state, self.nodes, self.rules))

    def check(self) -> None:
        """Raise if an invariant is broken, or ever was, naming it."""
        self._look()
        if self.checkers.broken:
            raise InvariantBrokenInWorldError("\n".join(map(str, self.checkers.broken.values())))


def _told(asked: LeaderEpoch, outcome: EpochEntry | None) -> str:
    if outcome is None:
        return "it cannot say"
    epoch, end_offset = outcome
    return str(end_offset) if epoch == asked else f"it knows {epoch} before that, and its end: {end_offset}"
