#!/bin/sh
# run.sh TARGET... runs make for one target after the other until one fails, and prints a summary of the results.
set -u
summary='' failed=''
for target; do
	if [ -n "$failed" ]; then
		summary="$summary$(printf '\n  %-12s not run' "$target")"
		continue
	fi
	printf '\n=== make %s\n' "$target"
	begin=$(date +%s)
	result=passed
	"${MAKE:-make}" --no-print-directory "$target" || { result=FAILED failed=$target; }
	summary="$summary$(printf '\n  %-12s %s in %d s' "$target" "$result" $(($(date +%s) - begin)))"
done
printf '\n=== summary%s\n' "$summary"
if [ -n "$failed" ]; then
	echo "make $failed repeats what failed"
	exit 1
fi
echo 'everything passed'
