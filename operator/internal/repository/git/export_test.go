package git

// LimitBytes sets how many bytes a fetched commit may have on disk.
func (r *Remote) LimitBytes(n int64) {
	r.limits.pack, r.limits.inflated = n, 16*n
	r.store.limits = r.limits
}
