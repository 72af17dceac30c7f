"""What becomes of packets: late, narrow, twice, overtaken, lost, or cut off."""

from __future__ import annotations

import random
import struct

from chaos.resets import ACK, RST, SYN, Segment, checksum, reset_of, segment_of
from chaos.wires import CUT, HELD_MAX, QUEUE_SECONDS_MAX, REORDERED_MS, Way, Weather, Wires

THERE, BACK = Way(1, 2), Way(2, 1)


def wires(weather: Weather | None = None) -> Wires:
    found = Wires(random.Random(1))
    if weather is not None:
        found.weather[THERE] = weather
    return found


def arrivals(found: Wires, until: float) -> list[tuple[float, bytes]]:
    """When each packet arrives, as a clock that jumps from one to the next sees it."""
    arrived = []
    while (due := found.next_due()) is not None and due <= until:
        arrived += [(due, packet) for _, packet in found.take_due(due)]
    return arrived


def packet(number: int) -> bytes:
    return number.to_bytes(2)


def test_a_fair_way_is_clear_and_others_are_not() -> None:
    found = wires(CUT)
    assert found.is_clear(BACK)
    assert not found.is_clear(THERE)


def test_nothing_passes_a_cut_and_what_was_under_way_is_lost() -> None:
    found = wires(Weather(delay_ms=100))
    found.on_packet(THERE, packet(1), 0.0)
    found.on_packet(BACK, packet(2), 0.0)
    found.weather[THERE] = CUT
    found.on_packet(THERE, packet(3), 0.0)
    assert [one for _, one in arrivals(found, 1.0)] == [packet(2)]
    assert (found.passed, found.lost) == (1, 2)


def test_late_packets_keep_their_order() -> None:
    found = wires(Weather(delay_ms=50, jitter_ms=50))
    for number in range(100):
        found.on_packet(THERE, packet(number), number / 10_000)
    arrived = arrivals(found, 1.0)
    assert [one for _, one in arrived] == [packet(number) for number in range(100)]
    assert 0.05 <= arrived[0][0] <= arrived[-1][0] <= 0.01 + 0.1


def test_what_is_late_is_not_overtaken_when_the_way_is_fair_again() -> None:
    found = wires(Weather(delay_ms=50))
    found.on_packet(THERE, packet(1), 0.0)
    del found.weather[THERE]
    assert not found.is_clear(THERE)
    found.on_packet(THERE, packet(2), 0.0)
    assert [one for _, one in arrivals(found, 1.0)] == [packet(1), packet(2)]
    assert found.is_clear(THERE)


def test_shares_of_packets_are_lost_repeated_and_overtaken() -> None:
    found = wires(Weather(loss=0.1, duplication=0.2, reordering=0.3))
    for number in range(10_000):
        found.on_packet(THERE, packet(number), number / 1_000)
    arrived = [one for _, one in arrivals(found, 20.0)]
    assert 800 < found.lost < 1_200
    assert 1_600 < found.repeated < 2_000
    assert 2_500 < found.overtaken < 2_900
    assert len(arrived) == 10_000 - found.lost + found.repeated
    assert arrived != sorted(arrived)


def test_an_overtaken_packet_arrives_after_those_that_follow_it_closely() -> None:
    found = wires(Weather(reordering=1.0))
    found.on_packet(THERE, packet(1), 0.0)
    found.weather[THERE] = Weather(delay_ms=REORDERED_MS / 2)
    found.on_packet(THERE, packet(2), 0.0)
    assert [one for _, one in arrivals(found, 1.0)] == [packet(2), packet(1)]


def test_a_narrow_way_takes_its_time_and_its_queue_has_an_end() -> None:
    found = wires(Weather(bytes_per_second=1_000))
    for number in range(3 * round(QUEUE_SECONDS_MAX) + 1):
        found.on_packet(THERE, packet(number) + bytes(498), 0.0)
    arrived = arrivals(found, 10.0)
    assert [when for when, _ in arrived] == [0.5, 1.0, 1.5]
    assert found.lost == 1


def test_no_more_packets_are_held_than_there_is_room_for() -> None:
    found = wires(Weather(delay_ms=1_000))
    for _ in range(HELD_MAX + 5):
        found.on_packet(THERE, packet(1), 0.0)
    assert found.lost == 5


ONE, OTHER = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])


def segment(flags: int, *, source: bytes = ONE, ports: tuple[int, int] = (4_000, 9_092), length: int = 0) -> bytes:
    """A packet of TCP between the two."""
    target = OTHER if source == ONE else ONE
    header = struct.pack("!HHIIBBHHH", *ports, (1 << 32) - 1, 77, 5 << 4, flags, 0, 0, 0)
    total = 20 + len(header) + length
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, 6, 0, source, target) + header + bytes(length)


def parsed(packet: bytes) -> Segment:
    found = segment_of(packet)
    assert found is not None
    return found


def test_a_reset_is_what_its_receiver_believes() -> None:
    answer = reset_of(parsed(segment(ACK, length=10)))
    assert (checksum(answer[:20]), checksum(answer[12:20] + struct.pack("!HH", 6, 20) + answer[20:])) == (0, 0)
    told = parsed(answer)
    assert (told.source, told.target, told.flags, told.sequence) == (OTHER, ONE, RST, 77)
    told = parsed(reset_of(parsed(segment(SYN))))
    assert (told.flags, told.acknowledged) == (RST | ACK, 0)


def test_both_ends_are_told() -> None:
    found = wires(Weather(forgets=True, tells_both=True))
    old = segment(ACK, length=5)
    found.on_packet(THERE, old, 0.0)
    (_, first), (way, second) = found.take_due(0.0)
    assert (first, way) == (reset_of(parsed(old)), THERE)
    assert checksum(second[12:20] + struct.pack("!HH", 6, 20) + second[20:]) == 0
    told = parsed(second)
    assert (told.source, told.target, told.flags, told.sequence) == (ONE, OTHER, RST, (1 << 32) - 1)


def test_who_forgets_resets_what_was_open_and_lets_new_connections_pass() -> None:
    found = wires(Weather(forgets=True))
    found.weather[BACK] = Weather(forgets=True)
    old, new = segment(ACK, length=5), segment(SYN, ports=(4_001, 9_092))
    answer = segment(SYN | ACK, source=OTHER, ports=(9_092, 4_001))
    datagram = bytes([0x45, *bytes(8), 17, *bytes(10)])
    found.on_packet(THERE, old, 0.0)
    found.on_packet(BACK, answer, 0.0)
    assert found.take_due(0.0) == [(BACK, reset_of(parsed(old))), (THERE, reset_of(parsed(answer)))]
    found.on_packet(THERE, new, 0.0)
    found.on_packet(BACK, answer, 0.0)
    found.on_packet(THERE, datagram, 0.0)
    found.on_packet(THERE, reset_of(parsed(segment(ACK, source=OTHER))), 0.0)
    assert found.take_due(0.0) == [(THERE, new), (BACK, answer), (THERE, datagram)]
    assert found.reset == 3
