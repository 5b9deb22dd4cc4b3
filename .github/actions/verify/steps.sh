#!/usr/bin/env bash
# The steps of this action, by name: install, verify, comment. What they work on is in the
# environment; nothing of it is ever part of a command's text.
set -euo pipefail

environment=$RUNNER_TEMP/cimtool-environment

# Bytes that a job's summary and a comment may have, less than what the server takes.
summary_most=1000000
comment_most=60000

install() {
    [ -x "$environment/bin/cimtool" ] && return
    "$PYTHON" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet "$GITHUB_ACTION_PATH/../../.."
}

# each OPTION LINES: add the option to `options` once a line that is not empty.
each() {
    local line
    while IFS= read -r line; do
        [ -z "$line" ] || options+=("$1" "$line")
    done <<<"$2"
}

verify() {
    local options=() status=0 report
    report=$(mktemp -d "$RUNNER_TEMP/cimtool-report-XXXXXX")
    each --data "$DATA"
    each --baseline "$BASELINE"
    each --tolerance "$TOLERANCE"
    each --max-drift "$MAX_DRIFT"
    options+=(--report "$report" --junit "$report/junit.xml")
    "$environment/bin/cimtool" verify "${options[@]}" -- "$BUNDLE" 2>"$report/errors.txt" || status=$?
    cat "$report/errors.txt" >&2
    {
        echo "status=$status"
        echo "report=$report"
    } >>"$GITHUB_OUTPUT"
    said "$report" "$summary_most" >>"$GITHUB_STEP_SUMMARY"
    exit "$status"
}

# said FOLDER BYTES: the report, or as indented text what kept it from being written.
said() {
    if [ -f "$1/report.md" ]; then
        head -c "$2" "$1/report.md"
    elif [ -s "$1/errors.txt" ]; then
        head -c "$2" "$1/errors.txt" | sed 's/^/    /'
    else
        echo "cimtool verify was ended before it wrote a report."
    fi
}

comment() {
    if [ -z "$REPORT" ]; then
        echo "cimtool verify did not run: nothing to comment"
        return
    fi
    said "$REPORT" "$comment_most" |
        gh pr comment "$PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --body-file -
}

"$1"
