#!/usr/bin/env bash
# Start an MLflow server with logins. Requires mlflow[auth] (Flask-WTF), psycopg for postgresql://, and
# boto3 for s3://.
#
#   export MLFLOW_AUTH_ADMIN_PASSWORD=…        at least 12 characters; creates `admin` at first start
#   export MLFLOW_FLASK_SERVER_SECRET_KEY=…    a long random string; keep it across restarts
#   cluster/mlflow/serve.sh
#
# Optional (MLflow's own variables, except the first):
#   DECILE_MLFLOW_HOME            folder for databases and artifacts       ~/decile/mlflow
#   MLFLOW_HOST, MLFLOW_PORT      address and port to listen on            127.0.0.1, 5000
#   MLFLOW_BACKEND_STORE_URI      runs: postgresql://…, or SQLite          sqlite:///mlflow.db
#   MLFLOW_ARTIFACTS_DESTINATION  files: a folder, or s3://…               ./artifacts
#   MLFLOW_AUTH_CONFIG_PATH       logins: an ini file                      basic_auth.ini in this folder
#   MLFLOW_WORKERS                processes                                2
# Relative paths are relative to DECILE_MLFLOW_HOME.
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
  || refuse "MLFLOW_AUTH_ADMIN_PASSWORD is too short: MLflow requires at least 12 characters"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH="$PATH:$here/../../.venv/bin" # where `make` installs; an active environment takes precedence
command -v mlflow >/dev/null || refuse "mlflow is not on the PATH: pip install 'mlflow[auth]'"

# MLflow reads these variables itself. They are not passed on the command line, because `ps` shows it to
# every user and a Postgres URI may contain a password.
export MLFLOW_HOST=${MLFLOW_HOST:-127.0.0.1}
export MLFLOW_PORT=${MLFLOW_PORT:-5000}
export MLFLOW_WORKERS=${MLFLOW_WORKERS:-2}
export MLFLOW_BACKEND_STORE_URI=${MLFLOW_BACKEND_STORE_URI:-sqlite:///mlflow.db}
export MLFLOW_ARTIFACTS_DESTINATION=${MLFLOW_ARTIFACTS_DESTINATION:-./artifacts}
export MLFLOW_AUTH_CONFIG_PATH=${MLFLOW_AUTH_CONFIG_PATH:-$here/basic_auth.ini}
export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY
export MLFLOW_DISABLE_TELEMETRY=${MLFLOW_DISABLE_TELEMETRY:-true}
# Decile uses no MLflow jobs; job execution would start eight more processes.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}

home=${DECILE_MLFLOW_HOME:-$HOME/decile/mlflow}
umask 077 # only this user may read password hashes and runs
mkdir -p "$home"
cd "$home"
# MLflow silently skips a missing file and fails later with a traceback.
[[ -r "$MLFLOW_AUTH_CONFIG_PATH" ]] \
  || refuse "MLFLOW_AUTH_CONFIG_PATH=$MLFLOW_AUTH_CONFIG_PATH cannot be read (from $home)"

case $MLFLOW_HOST in
  127.* | localhost | ::1) ;;
  *)
    printf 'serve.sh: %s\n' >&2 \
      "$MLFLOW_HOST accepts remote connections, and basic auth is not encrypted: use TLS." \
      "If clients use a public host name, also set MLFLOW_SERVER_ALLOWED_HOSTS=NAME."
    ;;
esac

# `exec`: signals reach MLflow, which stops its workers.
exec mlflow server --app-name basic-auth
