// Package hint serves push hints: HTTP requests with which a Git server says that a repository has a new commit, so
// that nstpl-sync fetches it at once instead of at the end of spec.interval.
//
// A hint is POST /hint/NAME, with a signature by the token in the Secret that spec.hint of the PolicyRepository NAME
// names. All it does is to set the annotation that kubectl nstpl sync now sets. Its body is neither parsed nor kept, so
// a forged or repeated hint costs at most one question to the Git server.
//
// Every replica takes hints, and the leader sees the annotation.
//
// # What a client without the token can do
//
//   - Only a hint with a valid signature causes a request to the API server. Tokens are read in the background.
//   - The answer, and the work before it, is the same for an unknown name, for a PolicyRepository without spec.hint and
//     for a wrong signature, so that names cannot be found out.
//   - Connections, headers, bodies and durations are limited.
//
// # Reading guide
//
//   - server.go answers requests; signature.go verifies them.
//   - tokens.go reads the tokens; requests.go writes the annotation.
package hint
