"""Values that would attack a page which shows them unescaped: they call `attacked()`, load from
another host, hide or change elements of the page, or are evaluated as a template.
"""

from typing import Final

HOSTILE: Final = (
    "<script>attacked()</script>",
    "</script><script>attacked()</script>",
    "</pre></td></tr></table><script>attacked()</script>",
    "<img src=x onerror=attacked()>",
    "<svg onload=attacked()>",
    "<svg><script>attacked()</script></svg>",
    "<iframe srcdoc='<script>parent.attacked()</script>'></iframe>",
    "<body onload=attacked()>",
    "<details open ontoggle=attacked()>",
    "<input autofocus onfocus=attacked()>",
    '"><script>attacked()</script>',
    "' onmouseover='attacked()",
    '" autofocus onfocus="attacked()',
    "javascript:attacked()",
    "<a href='javascript:attacked()' hx-get='/' hx-trigger='load'>x</a>",
    "<div hx-get='/topics' hx-trigger='load' hx-swap='outerHTML'></div>",
    "<div data-stream='/x'></div>",
    "<base href='//attacker.example/'>",
    "<meta http-equiv='refresh' content='0;url=javascript:attacked()'>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href='//attacker.example/x.css'>",
    "<form action='//attacker.example'><button>x</button></form>",
    "{{ 7 * 7 }}{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "${attacked()}",
    "<!--<script>attacked()</script>-->",
    "<![CDATA[<script>attacked()</script>]]>",
    "<math><mtext><table><mglyph><style><img src=x onerror=attacked()>",
    "<noscript><p title='</noscript><img src=x onerror=attacked()>'>",
    "&lt;script&gt;attacked()&lt;/script&gt;",
    "&#x3c;script&#x3e;attacked()&#x3c;/script&#x3e;",
    "\u2028attacked()\u2029",
    "data: {}\n\ndata: <script>attacked()</script>\n\n",
    '{"a": "</script><script>attacked()</script>", "<img src=x onerror=attacked()>": 1}',
)
