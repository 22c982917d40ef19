//go:build tools

// Package tools names kind, which makes clusters of containers.
package tools

import _ "sigs.k8s.io/kind"
