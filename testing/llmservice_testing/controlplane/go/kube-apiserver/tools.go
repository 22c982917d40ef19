//go:build tools

// Package tools pins what the control plane of the integration tests is built from: go mod tidy keeps the requirement
// because of this import, and go.sum makes the build reproducible.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
