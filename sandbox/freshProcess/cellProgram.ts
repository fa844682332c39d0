/**
 * Wraps a notebook's cell into a program for a fresh interpreter. A last statement that is an expression is echoed,
 * unless its value is None or a semicolon follows it. An error is reported with its type, line and message. Zygotes
 * (the warm interpreters of the other levels) have the same function in zygote/running.py.
 *
 * in   the cell's code      out  a Python program
 * Invariant: the wrapper's names are not among the cell's names. The wrapper uses the built-in `_ast`, since importing
 * `ast` would cost as much as a short call.
 */
const WRAPPER = `
def run_cell(source):
    import _ast, sys
    cell = type(sys)('__main__')
    cell.__builtins__ = __builtins__
    sys.modules['__main__'] = cell
    lines = source.replace('\\r\\n', '\\n').replace('\\r', '\\n').split('\\n') # as Python counts them
    try:
        tree = compile(source, '<cell>', 'exec', _ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and type(tree.body[-1]) is _ast.Expr:
            last = tree.body.pop()
        code = compile(tree, '<cell>', 'exec', 0, True)
        echo = last and compile(_ast.Expression(last.value), '<cell>', 'eval', 0, True)
        exec(code, cell.__dict__)
        if echo:
            value = eval(echo, cell.__dict__)
            rest = lines[last.end_lineno - 1].encode()[last.end_col_offset:].decode() + ''.join(lines[last.end_lineno:])
            if value is not None and not rest.lstrip(' \\t\\f\\\\').startswith(';'):
                print(repr(value))
    except SystemExit:
        raise
    except BaseException as error:
        line = getattr(error, 'lineno', None) if isinstance(error, SyntaxError) else None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == '<cell>':
                line = trace.tb_lineno
            trace = trace.tb_next
        try:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
        except BaseException:
            message = ''
        where = '' if line is None else ' at line %d' % line
        shown = '\\n  ' + lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else ''
        report = '%s%s%s%s\\n' % (type(error).__name__, where, ': ' + message if message else '', shown)
        try:
            sys.stdout.flush()
        except BaseException:
            pass
        sys.stderr.write(report)
        sys.exit(1)

`

export function cellProgram(code: string): string {
  // JSON.stringify writes a character above U+FFFF as it is, not as two escapes, so its result is also a Python string.
  return `${WRAPPER}run_cell(${JSON.stringify(code)})\n`
}
