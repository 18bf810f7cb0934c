// Package files holds the rules for the files of a tree of policies, which are the same for commits of Git and for
// artifacts of Flux: limits, files that are refused, errors for users, and the fs.FS that package hierarchy reads.
package files
