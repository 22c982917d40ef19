package main

import (
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa/utils"
)

// verdict is what kstatus says of one object.
type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// kstatus tells what the library that Flux, Cluster API and others wait with makes of each object.
func kstatus([]string) (any, error) {
	objects, err := utils.ReadObjects(os.Stdin)
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict, 0, len(objects))
	for _, object := range objects {
		result, err := status.Compute(object)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, verdict{result.Status.String(), result.Message})
	}
	return verdicts, nil
}
