package gateway

// HoldSigning keeps every token of g from being signed until release is called.
func HoldSigning(g *Gateway) (release func()) {
	for range cap(g.signing) {
		g.signing <- struct{}{}
	}
	return func() {
		for range cap(g.signing) {
			<-g.signing
		}
	}
}
