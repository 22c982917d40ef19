package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

// runLua runs a script as Argo CD runs one that was not given the standard libraries: with the basic functions and
// `table`, for a second, with the object in the global `obj`. It gives back what the script returns.
func runLua(arguments []string) (any, error) {
	flags := flag.NewFlagSet("lua", flag.ExitOnError)
	script := flags.String("script", "", "the file with the script")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&object); err != nil {
		return nil, err
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", luajson.DecodeValue(state, object))
	if err := state.DoFile(*script); err != nil {
		return nil, err
	}
	encoded, err := luajson.Encode(state.Get(-1))
	if err != nil {
		return nil, fmt.Errorf("%s returned what is no JSON: %w", *script, err)
	}
	return json.RawMessage(encoded), nil
}
