#!/usr/bin/env bash
# An MLflow server with logins. It needs mlflow[auth] (Flask-WTF); psycopg for postgresql://,
# boto3 for s3://.
#
#   export MLFLOW_AUTH_ADMIN_PASSWORD=…        12 characters or more; creates `admin` at first start
#   export MLFLOW_FLASK_SERVER_SECRET_KEY=…    any long random text; keep it across restarts
#   cluster/mlflow/serve.sh
#
# May be set too (MLflow's own names, except the first):
#   DECILE_MLFLOW_HOME            folder of databases and artifacts        ~/decile/mlflow
#   MLFLOW_HOST, MLFLOW_PORT      where it listens                         127.0.0.1, 5000
#   MLFLOW_BACKEND_STORE_URI      runs: postgresql://…, or SQLite          sqlite:///mlflow.db
#   MLFLOW_ARTIFACTS_DESTINATION  files: a folder, or s3://…               ./artifacts
#   MLFLOW_AUTH_CONFIG_PATH       logins: an ini file                      basic_auth.ini, beside this
#   MLFLOW_WORKERS                processes                                2
# Relative places are inside DECILE_MLFLOW_HOME.
set -euo pipefail

refuse() {
  printf 'serve.sh: %s\n' "$@" >&2
  exit 2
}

missing=()
for name in MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY; do
  [[ -n "${!name:-}" ]] || missing+=("$name is not set: export $name=… (or read it from a secret)")
done
((${#missing[@]} == 0)) || refuse "${missing[@]}"
((${#MLFLOW_AUTH_ADMIN_PASSWORD} >= 12)) \
  || refuse "MLFLOW_AUTH_ADMIN_PASSWORD is too short: MLflow wants 12 characters or more"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH="$PATH:$here/../../.venv/bin" # where `make` installs; an active environment comes first
command -v mlflow >/dev/null || refuse "mlflow is not on the PATH: pip install 'mlflow[auth]'"

# MLflow reads all of these itself. Kept off the command line, because `ps` shows that to everybody
# and a Postgres URI may hold a password.
export MLFLOW_HOST=${MLFLOW_HOST:-127.0.0.1}
export MLFLOW_PORT=${MLFLOW_PORT:-5000}
export MLFLOW_WORKERS=${MLFLOW_WORKERS:-2}
export MLFLOW_BACKEND_STORE_URI=${MLFLOW_BACKEND_STORE_URI:-sqlite:///mlflow.db}
export MLFLOW_ARTIFACTS_DESTINATION=${MLFLOW_ARTIFACTS_DESTINATION:-./artifacts}
export MLFLOW_AUTH_CONFIG_PATH=${MLFLOW_AUTH_CONFIG_PATH:-$here/basic_auth.ini}
export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY
export MLFLOW_DISABLE_TELEMETRY=${MLFLOW_DISABLE_TELEMETRY:-true}
# Decile runs no jobs inside MLflow; they would cost eight more processes.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}

home=${DECILE_MLFLOW_HOME:-$HOME/decile/mlflow}
umask 077 # password hashes and runs are nobody else's to read
mkdir -p "$home"
cd "$home"
# MLflow would skip a missing file in silence and fail later in a traceback.
[[ -r "$MLFLOW_AUTH_CONFIG_PATH" ]] \
  || refuse "MLFLOW_AUTH_CONFIG_PATH=$MLFLOW_AUTH_CONFIG_PATH cannot be read (from $home)"

case $MLFLOW_HOST in
  127.* | localhost | ::1) ;;
  *)
    printf 'serve.sh: %s\n' >&2 \
      "$MLFLOW_HOST is open to others, and basic auth sends passwords in clear: put TLS in front." \
      "Clients that use a public name need MLFLOW_SERVER_ALLOWED_HOSTS=NAME too."
    ;;
esac

# `exec`: signals reach MLflow, which ends its workers.
exec mlflow server --app-name basic-auth
