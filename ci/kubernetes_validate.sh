#!/usr/bin/env bash
# Prints the path of kubernetes-validate, with which the tests of the chart check manifests against
# Kubernetes' own schemas. Installs it once (ci/tool_env.sh).
set -euo pipefail
bin=$("$(dirname "${BASH_SOURCE[0]}")/tool_env.sh" chart requirements-chart.txt)
printf '%s\n' "$bin/kubernetes-validate"
