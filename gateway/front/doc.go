// Package front reads a client's request once, and finds the route that it matches.
package front
