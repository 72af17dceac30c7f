"""One file per API: its request and its response, in all versions. `tidelog.wire.api` imports them on first use."""
