#!/usr/bin/env bash
# Gateway, autoscaler and cluster as three processes of one machine, on the Kafka at $RELUME_EVENTS.
#   RELUME_EVENTS=kafka://localhost:9092 docs/examples/parts.sh -f model.yaml
# Options go to `relume cluster`. Ctrl-C or SIGTERM ends all three in order; if one ends by itself, so do the others.
set -u
export RELUME_EVENTS="${RELUME_EVENTS:?set it to kafka://HOST:PORT}"
relume cluster --admin-port "${CLUSTER_ADMIN_PORT:-8081}" "$@" & cluster=$!
relume autoscaler --admin-port "${AUTOSCALER_ADMIN_PORT:-8082}" & autoscaler=$!
relume gateway --admin-port "${GATEWAY_ADMIN_PORT:-8083}" --gateway-port "${GATEWAY_PORT:-8080}" & gateway=$!

status=0
trap : INT TERM # only ends the wait below
wait -n "$cluster" "$autoscaler" "$gateway" || status=$?
((status > 128)) && status=0 # by a signal to us
# Requests first: replicas and decisions must be there until the last one is answered.
for process in "$gateway" "$autoscaler" "$cluster"; do
    kill "$process" 2>/dev/null
    wait "$process" || status=1
done
exit "$status"
