"""An agent that works problems out with a calculator, written against the package openai. It knows nothing of Troupe.

Also runs without Troupe: OPENAI_BASE_URL=… OPENAI_API_KEY=… python agent.py "What is 12 * 34 + 5?"
"""

import ast
import json
import operator
import sys

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "execute_python_code_with_standard_io",
        "description": "Executes one line of Python: print(…) of an expression of numbers.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "input": {"type": "string"}},
            "required": ["code", "input"],
        },
    },
}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}


def value(node):
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        case ast.UnaryOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.operand))
        case ast.Name():
            raise NameError(f"name '{node.id}' is not defined")
    raise ValueError(f"cannot evaluate {ast.unparse(node)}: expected integers with +, - and *")


def calculate(name, arguments):
    """Answers one tool call. What a model wrote is parsed, never executed."""
    try:
        if name != TOOL["function"]["name"]:
            raise ValueError(f"no tool is named {name}")
        [statement] = ast.parse(str(json.loads(arguments)["code"])).body
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[inner])) | ast.Expr(value=inner):
                return f"Tool call success\nstdout: {value(inner)}"
        raise ValueError("expected print(…) of an expression")
    except Exception as error:
        return f"Tool call failure\nreason: {type(error).__name__}: {error}"


def solve(messages):
    client = OpenAI(max_retries=2)
    messages = list(messages)
    for _ in range(5):
        answer = client.chat.completions.create(model="any", messages=messages, tools=[TOOL])
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls and "<tool_call>" in (message.content or ""):
            # The server could not parse the call and returned it as text.
            messages.append({"role": "user", "content": "Tool call failure\nreason: the call is not valid JSON"})
        elif not message.tool_calls:
            return message.content
        for call in message.tool_calls or ():
            result = calculate(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return None


def run(task):
    print(solve(task["messages"]))


if __name__ == "__main__":
    print(solve([{"role": "user", "content": sys.argv[1]}]))
