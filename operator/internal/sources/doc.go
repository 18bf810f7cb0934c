// Package sources follows the sources of templates: the Secrets, ConfigMaps and other objects that are copied into
// namespaces.
//
// Store reads each source by its name, and watches the metadata of that one object, so that it reads the source again
// when it changes. It never lists or watches the contents of objects: the content comes from requests with the verb get
// only, which an administrator grants for single names. So memory holds no other Secret.
//
// These statements are always true:
//
//   - A source that was read remains known until the API server answers again after missTime that it does not exist, or
//     denies the verb get again after denyTime. A user who replaces it, or an API server that does not answer, or that
//     has just started and knows no roles yet, does not take it away. A source that was never read is lost no sooner,
//     since an earlier process may have read it.
//   - A change that waits is not copied from a source that the API server has denied since, or that is missing since.
//   - The copies of all sources together write copiedPerSecond, besides a first change of each source, or each source's
//     once in longestDelay if that is more. A change that removes all content or copies never waits for that.
//   - Values of sources are in no error, log or Event.
//   - A source with a protected attribute in its content, such as in a pod template, has no content for others. It is
//     judged when it was read and after each change of the rules.
package sources
