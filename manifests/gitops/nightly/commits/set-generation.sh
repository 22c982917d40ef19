#!/bin/sh
# Commits what spec.generation of a fleet is to be, for fleets whose generation is git's. Run it by a schedule of your CI:
#     set-generation.sh paused  fleets/git-owns/llmservice.yaml     at 22:00
#     set-generation.sh running fleets/git-owns/llmservice.yaml     at 06:00
# It makes no commit where nothing changes, and fails where the file does not have the one line that it sets.
set -eu

desired=$1
file=$2

case $desired in
paused | running) ;;
*)
  echo "the first argument must be paused or running, not '$desired'" >&2
  exit 2
  ;;
esac
if [ "$(grep -c '^  generation: ' "$file")" != 1 ]; then
  echo "$file must have exactly one line '  generation: ...' under spec" >&2
  exit 1
fi

git pull --quiet --rebase
sed "s/^  generation: .*/  generation: $desired/" "$file" >"$file.new"
mv "$file.new" "$file"
if git diff --quiet -- "$file"; then
  echo "$file says $desired already"
  exit 0
fi
git commit --quiet --message "Set generation of $file to $desired" -- "$file"
git push --quiet
