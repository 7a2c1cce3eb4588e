#!/usr/bin/env bash
# Prints the folder of the programs of an environment with schemathesis, with which tests send requests
# by the description of the API, and with openapi-spec-validator. Installs it once (ci/tool_env.sh).
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/tool_env.sh" api requirements-api.txt
