"""DescribeCluster 0-2: the cluster's id, its controller and its nodes.

Behaviour: a broker listener describes brokers, fenced ones where asked (2+); a controller listener describes
controllers, voters and others that registered; asked for the other kind, each refuses with MISMATCHED_ENDPOINT_TYPE, as
Kafka does. Who asks what one is authorized to do (KIP-430) learns it from either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.server.api.authorized_operations import AuthorizedOperations
from tidelog.server.api.request_context import RequestContext
from tidelog.server.transport.listener_roles import CONTROLLER
from tidelog.wire.messages.api_60_describe_cluster import (
    ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(node: QuorumApi, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    ours = ENDPOINT_CONTROLLERS if context.listener_role == CONTROLLER else ENDPOINT_BROKERS
    if request.endpoint_type not in (ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS):
        return _refused(ours, Code.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    if request.endpoint_type != ours:
        return _refused(ours, Code.MISMATCHED_ENDPOINT_TYPE, f"this listener belongs to a {context.listener_role}")
    if ours == ENDPOINT_CONTROLLERS:
        nodes = list(_controllers(node, context.connection.listener_name))
        controller_id = -1 if node.quorum.leader_id is None else node.quorum.leader_id
    else:
        nodes = []
        controller_id = -1 if node.controller_id is None else node.controller_id
        for broker in node.image.brokers.values():
            endpoint = broker.endpoint(context.connection.listener_name)
            if endpoint is not None and (request.include_fenced_brokers or not broker.is_fenced):
                nodes.append(
                    DescribeClusterBroker(
                        broker.broker_id, endpoint.host, endpoint.port, broker.rack, is_fenced=broker.is_fenced
                    )
                )
    answer = DescribeClusterResponse(
        endpoint_type=ours, cluster_id=node.cluster_id, controller_id=controller_id, brokers=nodes
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = AuthorizedOperations(node, context).on_cluster()
    return answer


def _controllers(node: QuorumApi, listener_name: str) -> Iterator[DescribeClusterBroker]:
    """The voters, and whoever else registered as a controller, where each listens under that name."""
    registered = node.image.controllers
    for controller_id in dict.fromkeys((*node.quorum.voters.ids, *registered)):
        controller = registered.get(controller_id)
        endpoint = None if controller is None else controller.endpoint(listener_name)
        if endpoint is not None:
            yield DescribeClusterBroker(controller_id, endpoint.host, endpoint.port)
        elif (voter := node.quorum.peers.endpoint_of(controller_id, listener_name)) is not None:
            yield DescribeClusterBroker(controller_id, *voter[1])


def _refused(endpoint_type: int, code: Code, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=endpoint_type)
