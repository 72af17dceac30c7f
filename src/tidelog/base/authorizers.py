"""What `authorizer.class.name` names. Here, since `tidelog up` writes it, and starts without what reads settings."""

from __future__ import annotations

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLUSTER_ACTION_AUTHORIZER = "tidelog.ClusterActionAuthorizer"
"""One of ours, which has no access rules: `tidelog up` sets it where there are no users."""
