#!/usr/bin/env bash
# Prints a folder that holds the SDK of OpenTelemetry, its exporter, the protobuf classes of OTLP, and
# those of their needs that the test environment does not have (a few MB); see package_folder.sh. The
# other tests run without them, as most programs do.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" opentelemetry \
    opentelemetry-api==1.45.2 opentelemetry-sdk==1.45.2 opentelemetry-proto==1.45.2 \
    opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-exporter-otlp-proto-common==1.45.2 \
    opentelemetry-exporter-http-transport==0.66b2 opentelemetry-exporter-otlp-common==0.66b2 \
    opentelemetry-semantic-conventions==0.66b2 googleapis-common-protos==1.76.0 protobuf==7.36.2
