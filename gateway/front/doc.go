// Package front has what a client's request is, read once, and the routes that it may match.
package front
