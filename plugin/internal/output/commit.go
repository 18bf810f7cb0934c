package output

import "strings"

// ShortHash is the number of characters that remain of an abbreviated hash, and the least number that identifies a
// commit on a command line.
const ShortHash = 7

// ShortCommit abbreviates the hash of a commit, such as 1a2b3c4, or the digest of an artifact, such as sha256:1a2b3c4.
func ShortCommit(name string) string {
	start := strings.IndexByte(name, ':') + 1
	return name[:min(len(name), start+ShortHash)]
}

// Commit says whether a name is that of a commit or an artifact, such as "commit 1a2b3c4" or "artifact sha256:1a2b3c4".
func Commit(name string) string {
	if strings.Contains(name, ":") {
		return "artifact " + name
	}
	return "commit " + name
}
