#!/bin/sh
# Makes the namespace, once. TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE come from the environment.
set -eu

# The port opens before the service answers; 60 s is ten times what it takes.
tries=0
until temporal operator cluster health; do
    tries=$((tries + 1))
    if [ "$tries" -ge 30 ]; then
        echo "the Temporal service at $TEMPORAL_ADDRESS did not become healthy within 60 s" >&2
        exit 1
    fi
    sleep 2
done

if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 30d
fi
