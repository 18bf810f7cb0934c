// Package artifact reads a tree of policies from the artifact of an object of Flux: a GitRepository, OCIRepository,
// Bucket or ExternalArtifact of the API group source.toolkit.fluxcd.io.
//
// Find reads the object, whose status says where its artifact is and which digest it has. Watch reports changes of the
// object. Download gets the artifact by HTTP and returns its files.
//
// The server of the artifact is not trusted. An artifact is downloaded into memory, up to a limit, and nothing of it is
// used before its digest was compared with that in the status. Then it is unpacked in memory, and only the files below
// one directory are kept. The limits hold while it is unpacked, so that no artifact expands to more.
package artifact
