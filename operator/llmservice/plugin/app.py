"""The commands and their options. Everything behind them is imported when a command runs: ``--help`` and completion are
asked for often, and need no API server."""

from typing import Annotated

import typer

from llmservice.plugin import completion
from llmservice.plugin.options import DryRun, Mode, Output, Where, seconds, which

MANAGER = "kubectl-llm"

app = typer.Typer(  # without a name, so that llmservice can have the same commands among its own
    help="Pause and resume fleets of LLM engines (LLMServices), watch them, and find out why one is not as asked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="LLMServices.", autocompletion=completion.fleets)
]
Selector = Annotated[
    str | None,
    typer.Option("-l", "--selector", help="Those whose own labels match, e.g. team=red.", metavar="SELECTOR"),
]
Every = Annotated[bool, typer.Option("--all", help="All of the namespace; with -A, of the cluster.")]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Default: the context's.", autocompletion=completion.namespaces),
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")]
Context = Annotated[
    str | None,
    typer.Option(help="A context of the kubeconfig. Default: the current one.", autocompletion=completion.contexts),
]
Kubeconfig = Annotated[str | None, typer.Option(help="Default: KUBECONFIG, else ~/.kube/config.", metavar="FILE")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Wait until the operator has confirmed this very change. Default: wait."),
]
Timeout = Annotated[
    float, typer.Option(parser=seconds, metavar="DURATION", help="How long to wait: 90s, 5m, 1h30m. Default 5m.")
]
Trial = Annotated[
    DryRun, typer.Option("--dry-run", help="Change nothing. server: the API server checks it, admission and all.")
]
Format = Annotated[Output | None, typer.Option("-o", "--output", help="What is printed.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on standard error.")]
FieldManager = Annotated[
    str, typer.Option(help="Whom the API server notes as the one who set it; status shows it.", metavar="NAME")
]


@app.command()
def pause(
    names: Names = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="abort: requests in flight end at once. wait: running ones are finished first. keep: they are frozen and "
            "go on after the resume. Is written to spec.pause.mode. Default: what stands there."
        ),
    ] = None,
    clear_cache: Annotated[
        bool | None,
        typer.Option(
            "--clear-cache/--keep-cache",
            help="Whether the pause drops the KV caches. Is written to spec.pause.clearCache. Default: what stands there.",
        ),
    ] = None,
    selector: Selector = None,
    every: Every = False,
    wait: Wait = True,
    timeout: Timeout = "5m",  # type: ignore[assignment]  # parsed like what is typed
    dry_run: Trial = DryRun.NONE,
    output: Format = None,
    quiet: Quiet = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    field_manager: FieldManager = MANAGER,
) -> None:
    """Pause fleets, and wait until every engine was read as paused.

    A fleet that is paused already is read afresh, so that the answer is about now. Exit status: 0 paused; 2 wrong usage;
    3 timed out; 4 stalled: a person is needed; 5 changed by somebody else, or paused already in another way; 6 not found;
    7 refused by the API server; 8 no API server; 130 interrupted; 1 anything else, or several of these.
    """
    where = Where(kubeconfig, context, namespace, all_namespaces)
    chosen = which(names, selector, every=every, where=where, is_change=True)
    from llmservice.api import Desired
    from llmservice.plugin import changing, running

    asked = changing.Change(Desired.PAUSED, mode, clear_cache, wait, timeout, dry_run, output, quiet, field_manager)
    running.run(lambda: changing.change(where, chosen, asked))


@app.command()
def resume(
    names: Names = None,
    selector: Selector = None,
    every: Every = False,
    wait: Wait = True,
    timeout: Timeout = "5m",  # type: ignore[assignment]  # parsed like what is typed
    dry_run: Trial = DryRun.NONE,
    output: Format = None,
    quiet: Quiet = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    field_manager: FieldManager = MANAGER,
) -> None:
    """Resume fleets, and wait until every engine was read as running. Exit status: as of pause."""
    where = Where(kubeconfig, context, namespace, all_namespaces)
    chosen = which(names, selector, every=every, where=where, is_change=True)
    from llmservice.api import Desired
    from llmservice.plugin import changing, running

    asked = changing.Change(Desired.RUNNING, None, None, wait, timeout, dry_run, output, quiet, field_manager)
    running.run(lambda: changing.change(where, chosen, asked))


@app.command()
def status(
    names: Names = None,
    selector: Selector = None,
    watch: Annotated[
        bool,
        typer.Option("-w", "--watch", help="Go on showing it. On a terminal a living table, else a line per change."),
    ] = False,
    output: Format = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show fleets and their engines: what is asked, what was read, what is in the way, and who set spec.generation.

    Exit status: 0 shown, whatever it says; 6 a NAME is not there; otherwise as of pause.
    """
    where = Where(kubeconfig, context, namespace, all_namespaces)
    chosen = which(names, selector, every=False, where=where, is_change=False)
    if watch and output not in (None, Output.WIDE):
        raise typer.BadParameter(f"-o {output} cannot be watched: use -o wide, or kubectl get llms -w -o {output}")
    from llmservice.plugin import running
    from llmservice.plugin import status as screens

    if watch:
        running.run(lambda: screens.watch(where, chosen, wide=output is Output.WIDE))
    running.run(lambda: screens.show(where, chosen, output))


@app.command()
def doctor(
    names: Names = None,
    probe: Annotated[
        bool,
        typer.Option("--probe/--no-probe", help="Ask engines /is_paused through the API server (get on pods/proxy)."),
    ] = True,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Ask the operator for a fresh read, to see that it is alive (patch on llmservices)."
        ),
    ] = False,
    output: Format = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Find out why a fleet is not as asked: what was found, how, and what to do.

    It reads with your rights, and says what it may not look at. Nothing is changed, unless --verify is given.
    Exit status: 0 nothing is wrong (warnings may be there); 4 a problem was found; otherwise as of pause.
    """
    where = Where(kubeconfig, context, namespace)
    chosen = which(names, None, every=False, where=where, is_change=True)
    if output in (Output.NAME, Output.WIDE):
        raise typer.BadParameter(f"doctor prints text, json or yaml, got -o {output}")
    from llmservice.plugin import running
    from llmservice.plugin.doctor import command

    running.run(lambda: command.diagnose(where, chosen, output, probe=probe, verify=verify))
