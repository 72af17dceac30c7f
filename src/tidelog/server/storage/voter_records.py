"""The voters as the metadata log has them (KIP-853), and as values.

Kafka: `VoterSet`.
"""

from __future__ import annotations

from tidelog.base.ids import BrokerId
from tidelog.quorum.values import ReplicaKey, Voter, VoterSet
from tidelog.records.control import KRaftVersionFeature, VoterDetails, VoterEndpoint, Voters
from tidelog.wire.primitives import ZERO_UUID

IN_THE_LOG = 1
KRAFT_VERSIONS = (0, 1)


def voters_record(voters: VoterSet) -> Voters:
    """The control record that makes them the voters."""
    return Voters(
        voters=[
            VoterDetails(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id or ZERO_UUID,
                endpoints=[VoterEndpoint(*endpoint) for endpoint in voter.endpoints],
                kraft_version_feature=KRaftVersionFeature(*KRAFT_VERSIONS),
            )
            for voter in voters.voters
        ]
    )


def voter_set_of(record: Voters) -> VoterSet:
    """The set of voters that a record holds."""
    return VoterSet(
        tuple(
            Voter(
                ReplicaKey(
                    BrokerId(one.voter_id), None if one.voter_directory_id == ZERO_UUID else one.voter_directory_id
                ),
                tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in one.endpoints),
            )
            for one in record.voters
        ),
        version=IN_THE_LOG,
    )
