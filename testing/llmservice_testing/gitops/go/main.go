// Command gitops does what GitOps tools do to a cluster, with their own code: it applies and waits as Flux's
// kustomize-controller does, says what kstatus makes of an object, and runs Lua in the interpreter that Argo CD has.
//
// Objects are read from standard input, the result is one JSON document on standard output. It ends with status 1 and a
// sentence on standard error when what was asked for failed, and with 2 when it was asked wrongly.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

var commands = map[string]func(arguments []string) (any, error){
	"flux-apply": fluxApply,
	"flux-wait":  fluxWait,
	"kstatus":    kstatus,
	"lua":        runLua,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: gitops flux-apply|flux-wait|kstatus|lua [flags] <objects")
		os.Exit(2)
	}
	result, err := commands[os.Args[1]](os.Args[2:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
