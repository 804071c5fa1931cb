#!/bin/sh
# check-staged-contracts.sh [OPTION... --] FILE...: does each contract go on from that of the last commit?
# A contract that the last commit does not have is new, and passes. The exit code is the largest of those of check.
set -u

folder=$(mktemp -d) || exit 5
trap 'rm -rf "$folder"' EXIT

# Options come first, then two dashes; without them there are no options. They are put behind the files, so that
# "$@" has them alone in the end.
case " $* " in *" -- "*) in_options=yes ;; *) in_options=no ;; esac
worst=0
count=$#
: > "$folder/files"
while [ "$count" -gt 0 ]; do
    if [ "$in_options" = no ]; then
        printf '%s\n' "$1" >> "$folder/files"
    elif [ "$1" = -- ]; then
        in_options=no
    else
        set -- "$@" "$1"
    fi
    shift
    count=$((count - 1))
done

while IFS= read -r file; do
    git cat-file -e "HEAD:$file" 2>/dev/null || continue
    git show "HEAD:$file" > "$folder/last-commit.json" || exit 5
    ttlsnap check "$@" "$folder/last-commit.json" "$file"
    code=$?
    [ "$code" -le "$worst" ] || worst=$code
done < "$folder/files"
exit "$worst"
