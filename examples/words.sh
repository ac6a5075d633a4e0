# Text processing with the usual tools: the most frequent words, and a table from lines.
set -euo pipefail

cat > poem.txt <<'POEM'
The sea is calm tonight.
The tide is full, the moon lies fair
Upon the straits; on the French coast the light
Gleams and is gone; the cliffs of England stand,
Glimmering and vast, out in the tranquil bay.
POEM

echo "most frequent words:"
tr '[:upper:]' '[:lower:]' < poem.txt | tr -cs '[:alpha:]' '\n' | sort | uniq -c | sort -k1,1nr -k2,2 | head -n 4 \
  | awk '{ printf "%3d %s\n", $1, $2 }'

echo "longest line:"
awk '{ if (length > length(longest)) longest = $0 } END { print length(longest) ": " longest }' poem.txt

count=0
while read -r line; do
  [[ $line == *is* ]] && count=$((count + 1))
done < poem.txt
echo "lines with 'is': $count"
sed -n '/French/s/.*\(French coast\).*/found: \1/p' poem.txt
cp poem.txt /output/poem.txt
