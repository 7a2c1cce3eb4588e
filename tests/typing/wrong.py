"""Code that mypy --strict refuses: each line that it must complain of ends in `# wrong`."""

import forebay

client = forebay.Client(5)  # wrong
bucket = forebay.Client().bucket("b")
bucket.object("o").put(1)  # wrong
bucket.object("o").get(num_workers="4")  # wrong
bucket.object("o").get().read_into(b"x" if bucket else "text")  # wrong
size: str = bucket.list_snapshot()[0][1]  # wrong
forebay.AsyncClient().bucket("b").head().keys()  # wrong
bucket.put_many(["name"])  # wrong
for result, content in client.batch(["a"]):  # wrong
    pass
