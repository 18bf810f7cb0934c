// Package git reads a tree of policies from a commit of a remote Git repository.
//
// A Remote asks the server which commit a reference points to (Resolve), downloads that commit (Fetch), and returns it
// as a Commit, whose Files are an fs.FS. There is no checkout and no git program: files are read from the objects that
// the server sent, after each object was hashed.
//
// The package speaks the protocol itself, over HTTPS and SSH, and uses go-git for the formats: packets, multiplexed
// streams, packs, deltas and hashes that detect collisions of SHA-1. The clients of go-git are not used, because they
// read answers, large files and deltas into memory without a limit, because their SSH handshake ignores deadlines, and
// because they keep the list of capabilities in a global variable. docs/dependencies.md has figures. Each fetch is
// complete: the request names no object that the client has. So capabilities that servers such as Azure DevOps demand
// (multi_ack, multi_ack_detailed) are requested when the server has them, and their negotiation never takes place.
package git
